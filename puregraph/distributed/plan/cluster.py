"""Cluster: the figures of the machines for which training is planned."""

from __future__ import annotations

import math
from numbers import Integral
from typing import NamedTuple

from puregraph.core.errors import ArgumentError
from puregraph.distributed.worlds.countingworld import LinkSpeed


class Cluster(NamedTuple):
    """The processes of a cluster, and the resources of each.

    `ranks`      the number of processes that train together
    `link`       the link between machines; `node` processes of one machine share its bandwidth
    `flops`      operations a second
    `bandwidth`  bytes a second that a process reads and writes in its memory
    `memory`     bytes of a process; inf: unlimited
    """

    ranks: int
    link: LinkSpeed = LinkSpeed()
    node: int = 1
    flops: float = 1e12
    bandwidth: float = 1e11
    memory: float = math.inf

    @property
    def share(self) -> LinkSpeed:
        """The link per process: its share of the bandwidth, with free exchanges within a machine."""
        if self.node == 1 or self.ranks <= self.node:
            return self.link
        outside = (self.ranks - self.node) / (self.ranks - 1)
        return self.link._replace(bandwidth=self.link.bandwidth / (self.node * outside))

    def checked(self) -> Cluster:
        """Return this cluster.

        Raises    ArgumentError for invalid figures
        """
        for name in ("ranks", "node"):
            value: object = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"{name}: wanted a whole number of processes of at least 1, got {value}")
        rates = {"flops": self.flops, "bandwidth": self.bandwidth, "link": self.link.bandwidth}
        for name, value in rates.items():
            if not 0 < value < math.inf:
                raise ArgumentError(f"{name}: wanted a finite number above 0, got {value:g}")
        if not self.memory > 0:
            raise ArgumentError(f"memory: wanted a number of bytes above 0, or inf for any, got {self.memory:g}")
        if not 0 <= self.link.latency < math.inf:
            raise ArgumentError(f"link: wanted a finite latency of at least 0 seconds, got {self.link.latency:g}")
        return self
