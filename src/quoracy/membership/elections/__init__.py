"""Elections among peers: Bully, two on a ring, and by majority.  See docs/guides/peer-elections.md."""

from quoracy.membership.elections.bully import Bully as Bully
from quoracy.membership.elections.bully import BullySettings as BullySettings
from quoracy.membership.elections.elector import Assumptions as Assumptions
from quoracy.membership.elections.elector import ElectionEvent as ElectionEvent
from quoracy.membership.elections.elector import Elector as Elector
from quoracy.membership.elections.elector import LeaderElected as LeaderElected
from quoracy.membership.elections.elector import LeaderLost as LeaderLost
from quoracy.membership.elections.elector import LossReason as LossReason
from quoracy.membership.elections.ring import CollectingRing as CollectingRing
from quoracy.membership.elections.ring import Ring as Ring
from quoracy.membership.elections.ring import RingSettings as RingSettings
from quoracy.membership.elections.terms import MemoryVote as MemoryVote
from quoracy.membership.elections.terms import Persisted as Persisted
from quoracy.membership.elections.terms import SaveVote as SaveVote
from quoracy.membership.elections.terms import Terms as Terms
from quoracy.membership.elections.terms import TermsSettings as TermsSettings
from quoracy.membership.elections.terms import VoteStorage as VoteStorage
