"""What several processes exchange from GPU to GPU, by NCCL."""
