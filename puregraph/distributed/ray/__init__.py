"""Ray: restart a run when a worker is lost, or when more workers are available."""

from puregraph.distributed.ray.rayrun import RayRun

__all__ = ["RayRun"]
