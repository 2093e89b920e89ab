"""Who else used this machine while ranks worked: its cores and GPUs, looked at from outside the ranks."""
