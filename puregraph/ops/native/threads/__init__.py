"""The thread pool of this process: workers, their loop, the steps that they run, and how many threads a step gets."""
