"""Ray: runs that are started again when a worker is lost, and with more workers when there are more."""

from puregraph.distributed.ray.rayrun import RayRun

__all__ = ["RayRun"]
