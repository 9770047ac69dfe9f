"""Exchange between the GPUs of several processes, by NCCL."""
