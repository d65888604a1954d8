"""The peers there are, and which of them this environment has."""

from importlib.util import find_spec

from ncai.comparison.peers.base import Peer
from ncai.comparison.peers.catboost import CatBoostPeer
from ncai.comparison.peers.ngboost import NGBoostPeer
from ncai.comparison.peers.quantile_forest import QuantileForestPeer

PEERS = (NGBoostPeer, CatBoostPeer, QuantileForestPeer)


def installed_peers(seed: int = 0) -> tuple[list[Peer], list[str]]:
    """Peers to use, and the names of those whose package is missing."""
    found = [peer for peer in PEERS if find_spec(peer.package) is not None]
    missing = [peer.name for peer in PEERS if peer not in found]
    return [peer(seed) for peer in found], missing


def missing_sentence(names: list[str]) -> str:
    """How to get the peers that are missing."""
    are = "are" if len(names) > 1 else "is"
    return f"{', '.join(names)} {are} not installed: pip install 'ncai[compare]'."
