"""puregraph beside other frameworks; `run.py` is the script to start."""
