"""Elections among peers: Bully, two on a ring, and by majority.  See docs/guides/peer-elections.md."""

from quorate.membership.elections.bully import BULLY_ASSUMPTIONS as BULLY_ASSUMPTIONS
from quorate.membership.elections.bully import Bully as Bully
from quorate.membership.elections.bully import BullySettings as BullySettings
from quorate.membership.elections.interface import Assumptions as Assumptions
from quorate.membership.elections.interface import ElectionEvent as ElectionEvent
from quorate.membership.elections.interface import Elector as Elector
from quorate.membership.elections.interface import LeaderElected as LeaderElected
from quorate.membership.elections.interface import LeaderLost as LeaderLost
from quorate.membership.elections.interface import LossReason as LossReason
from quorate.membership.elections.persisted import MemoryVote as MemoryVote
from quorate.membership.elections.persisted import Persisted as Persisted
from quorate.membership.elections.ring import COLLECTING_ASSUMPTIONS as COLLECTING_ASSUMPTIONS
from quorate.membership.elections.ring import RING_ASSUMPTIONS as RING_ASSUMPTIONS
from quorate.membership.elections.ring import CollectingRing as CollectingRing
from quorate.membership.elections.ring import Ring as Ring
from quorate.membership.elections.ring import RingSettings as RingSettings
from quorate.membership.elections.terms import TERMS_ASSUMPTIONS as TERMS_ASSUMPTIONS
from quorate.membership.elections.terms import Terms as Terms
from quorate.membership.elections.terms import TermsSettings as TermsSettings
from quorate.membership.elections.vote import SaveVote as SaveVote
from quorate.membership.elections.vote import VoteStorage as VoteStorage

__all__ = [
    "BULLY_ASSUMPTIONS",
    "COLLECTING_ASSUMPTIONS",
    "RING_ASSUMPTIONS",
    "TERMS_ASSUMPTIONS",
    "Assumptions",
    "Bully",
    "BullySettings",
    "CollectingRing",
    "ElectionEvent",
    "Elector",
    "LeaderElected",
    "LeaderLost",
    "LossReason",
    "MemoryVote",
    "Persisted",
    "Ring",
    "RingSettings",
    "SaveVote",
    "Terms",
    "TermsSettings",
    "VoteStorage",
]
