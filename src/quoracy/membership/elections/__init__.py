"""Elections among peers: Bully, two on a ring, and by majority.  See docs/guides/peer-elections.md."""

from quoracy.membership.elections.bully import BULLY_ASSUMPTIONS as BULLY_ASSUMPTIONS
from quoracy.membership.elections.bully import Bully as Bully
from quoracy.membership.elections.bully import BullySettings as BullySettings
from quoracy.membership.elections.interface import Assumptions as Assumptions
from quoracy.membership.elections.interface import ElectionEvent as ElectionEvent
from quoracy.membership.elections.interface import Elector as Elector
from quoracy.membership.elections.interface import LeaderElected as LeaderElected
from quoracy.membership.elections.interface import LeaderLost as LeaderLost
from quoracy.membership.elections.interface import LossReason as LossReason
from quoracy.membership.elections.persisted import MemoryVote as MemoryVote
from quoracy.membership.elections.persisted import Persisted as Persisted
from quoracy.membership.elections.ring import COLLECTING_ASSUMPTIONS as COLLECTING_ASSUMPTIONS
from quoracy.membership.elections.ring import RING_ASSUMPTIONS as RING_ASSUMPTIONS
from quoracy.membership.elections.ring import CollectingRing as CollectingRing
from quoracy.membership.elections.ring import Ring as Ring
from quoracy.membership.elections.ring import RingSettings as RingSettings
from quoracy.membership.elections.terms import TERMS_ASSUMPTIONS as TERMS_ASSUMPTIONS
from quoracy.membership.elections.terms import Terms as Terms
from quoracy.membership.elections.terms import TermsSettings as TermsSettings
from quoracy.membership.elections.vote import SaveVote as SaveVote
from quoracy.membership.elections.vote import VoteStorage as VoteStorage

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
