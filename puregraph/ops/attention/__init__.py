"""Attention: softmax(scale q k' + mask) v and its gradients, without a table of scores."""
