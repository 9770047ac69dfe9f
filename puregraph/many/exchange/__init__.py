"""Exchange: the thread that takes exchanges of several buckets on at once, and how who waits looks again."""

from puregraph.many.exchange.backoff import Backoff
from puregraph.many.exchange.exchangethread import ExchangeThread, RunningExchange
from puregraph.many.exchange.sharedarena import ArenaPending, SharedArena

__all__ = ["ArenaPending", "Backoff", "ExchangeThread", "RunningExchange", "SharedArena"]
