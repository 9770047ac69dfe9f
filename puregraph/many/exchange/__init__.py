"""Exchange: the thread that takes exchanges of several buckets on at once, and how who waits looks again."""

from puregraph.many.exchange.backoff import Backoff
from puregraph.many.exchange.exchangethread import ExchangeThread, RunningExchange

__all__ = ["Backoff", "ExchangeThread", "RunningExchange"]
