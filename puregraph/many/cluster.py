"""Cluster: the machines that a training is planned for, as numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

from puregraph.errors import ArgumentError
from puregraph.many.countingworld import LinkSpeed


class Cluster(NamedTuple):
    """Processes, and what each of them has.

    `ranks`      how many processes train together
    `link`       what connects machines; `node` processes of one machine share its bandwidth
    `flops`      operations a second
    `bandwidth`  bytes a second that a process reads and writes in its memory
    `memory`     bytes
    """

    ranks: int
    link: LinkSpeed = LinkSpeed()
    node: int = 1
    flops: float = 1e12
    bandwidth: float = 1e11
    memory: float = math.inf

    @property
    def share(self) -> LinkSpeed:
        """The link as one process sees it: what stays on its machine takes no time, the rest a share of bandwidth."""
        if self.node == 1 or self.ranks <= self.node:
            return self.link
        outside = (self.ranks - self.node) / (self.ranks - 1)
        return self.link._replace(bandwidth=self.link.bandwidth / (self.node * outside))

    def checked(self) -> Cluster:
        """This cluster.

        Raises    ArgumentError for what no machine has
        """
        for name in ("ranks", "node"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name}: wanted a number of processes of at least 1, got {getattr(self, name)}")
        rates = {"flops": self.flops, "bandwidth": self.bandwidth, "memory": self.memory}
        for name, value in {**rates, "link": self.link.bandwidth}.items():
            if not value > 0:
                raise ArgumentError(f"{name}: wanted a number above 0, got {value:g}")
        if not self.link.latency >= 0:
            raise ArgumentError(f"link: wanted a latency of at least 0 seconds, got {self.link.latency:g}")
        return self
