"""Recurrent cells: LSTM, GRU and RNN over all time steps, and their gradients."""
