------------------------------- MODULE Claim -------------------------------
(* Exclusive creation on a key (sequence number and part) of a file whose whole name, with its time   *)
(* and starts, is different for every creator. RollOver takes it as one step; here are the steps of   *)
(* the posix driver, with power losses and with retention. The design says: creation is exclusive on  *)
(* (shard, sequence number); names are never used again.                                              *)
(*                                                                                                    *)
(*   create = finish and flush a nameless inode; link it as .claim-KEY, which is exclusive; flush the *)
(*            directory; link it as NAME; flush the directory; look whether the key is still at or    *)
(*            above the floor.                                                                        *)
(*   help   = whoever finds the claim of another one does the rest of the creation for him.           *)
(*   delete = raise the floor, durably; unlink the claim; unlink the names.                           *)
(*                                                                                                    *)
(* Abstractions. There is one key. An inode stands for its creator and its name. Link and unlink are  *)
(* atomic for processes; after a power loss each that was not flushed is there or not, independently  *)
(* of the others. The floor is one durable value. Every property is a safety one.                     *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Creators,
  MaxLosses,
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  claim, dclaim,   \* the inode that is linked as the claim, or None: as processes see it, and on disk
  names, dnames,   \* the inodes that are linked under their names
  floor,           \* TRUE: the key is below the floor
  pc,              \* creator -> its step
  target,          \* creator -> the inode that it brings into being: its own, or the one that it helps
  told,            \* creators that were told "created"
  exists,          \* inodes of which another creator was told "it is there already"
  seen,            \* inodes whose name somebody has seen while the key was above the floor
  gc,              \* step of the deletion
  losses

vars == <<claim, dclaim, names, dnames, floor, pc, target, told, exists, seen, gc, losses>>

None == "none"

LinkClaim(c) ==
  /\ pc[c] = "new"
  /\ IF claim = None
     THEN claim' = c /\ target' = [target EXCEPT ![c] = c]
     ELSE UNCHANGED claim /\ target' = [target EXCEPT ![c] = claim]
  /\ pc' = [pc EXCEPT ![c] =
       \* planted: a helper takes the claim that it sees for durable
       IF Bug = "helper_does_not_flush" /\ claim # None THEN "name"
       \* planted: the directory is flushed once, at the end
       ELSE IF Bug = "claim_not_flushed" THEN "name"
       \* planted: a claim without its name is an answer
       ELSE IF Bug = "nobody_helps" /\ claim # None THEN "done"
       ELSE "flush"]
  /\ exists' = IF Bug = "nobody_helps" /\ claim # None THEN exists \cup {claim} ELSE exists
  /\ UNCHANGED <<dclaim, names, dnames, floor, told, seen, gc, losses>>

\* The claim is durable before the name exists: else a power loss keeps the name only, and the key
\* can be claimed again.
FlushClaim(c) ==
  /\ pc[c] = "flush"
  /\ dclaim' = claim
  /\ dnames' = names
  /\ pc' = [pc EXCEPT ![c] = "name"]
  /\ UNCHANGED <<claim, names, floor, target, told, exists, seen, gc, losses>>

LinkName(c) ==
  /\ pc[c] = "name"
  /\ names' = names \cup {target[c]}
  /\ pc' = [pc EXCEPT ![c] = "flush2"]
  /\ UNCHANGED <<claim, dclaim, dnames, floor, target, told, exists, seen, gc, losses>>

FlushName(c) ==
  /\ pc[c] = "flush2"
  /\ dclaim' = claim
  /\ dnames' = names
  /\ pc' = [pc EXCEPT ![c] = "check"]
  /\ UNCHANGED <<claim, names, floor, target, told, exists, seen, gc, losses>>

\* The floor is looked at after the links. A creator that slept while the key was deleted found no
\* claim, and has made a file that must not be: it says so, and the next sweep takes it away.
CheckFloor(c) ==
  /\ pc[c] = "check"
  /\ pc' = [pc EXCEPT ![c] = "done"]
  /\ LET gone == floor /\ Bug # "floor_not_checked" IN
     /\ told' = IF ~gone /\ target[c] = c THEN told \cup {c} ELSE told
     /\ exists' = IF ~gone /\ target[c] # c THEN exists \cup {target[c]} ELSE exists
  /\ UNCHANGED <<claim, dclaim, names, dnames, floor, target, seen, gc, losses>>

\* Anyone lists the directory. What is below the floor is not looked at.
List ==
  /\ ~floor
  /\ names \ seen # {}
  /\ seen' = seen \cup names
  /\ UNCHANGED <<claim, dclaim, names, dnames, floor, pc, target, told, exists, gc, losses>>

RaiseFloor ==
  /\ gc = "idle"
  /\ told # {}
  \* planted: the floor is raised after the deletion
  /\ floor' = (Bug # "floor_raised_late")
  /\ gc' = "claim"
  /\ UNCHANGED <<claim, dclaim, names, dnames, pc, target, told, exists, seen, losses>>

DeleteClaim ==
  /\ gc = "claim"
  /\ claim' = None
  /\ gc' = "names"
  /\ UNCHANGED <<dclaim, names, dnames, floor, pc, target, told, exists, seen, losses>>

\* Last: by its name a deletion that died is found again.
DeleteNames ==
  /\ gc = "names"
  /\ names' = {}
  /\ gc' = "flush"
  /\ UNCHANGED <<claim, dclaim, dnames, floor, pc, target, told, exists, seen, losses>>

FlushDeletion ==
  /\ gc = "flush"
  /\ dclaim' = claim
  /\ dnames' = names
  /\ floor' = TRUE
  /\ gc' = "done"
  /\ UNCHANGED <<claim, names, pc, target, told, exists, seen, losses>>

\* Whoever was about something is gone; those who had not begun may begin.
PowerLoss ==
  /\ losses < MaxLosses
  /\ losses' = losses + 1
  /\ \E c \in {claim, dclaim} : claim' = c /\ dclaim' = c
  /\ \E change \in SUBSET ((names \ dnames) \cup (dnames \ names)) :
       LET left == (dnames \ change) \cup (change \ dnames) IN names' = left /\ dnames' = left
  /\ pc' = [c \in Creators |-> IF pc[c] = "new" THEN "new" ELSE "done"]
  /\ gc' = IF gc \in {"idle", "done"} THEN gc ELSE "names"
  /\ UNCHANGED <<floor, target, told, exists, seen>>

Init ==
  /\ claim = None
  /\ dclaim = None
  /\ names = {}
  /\ dnames = {}
  /\ floor = FALSE
  /\ pc = [c \in Creators |-> "new"]
  /\ target = [c \in Creators |-> None]
  /\ told = {}
  /\ exists = {}
  /\ seen = {}
  /\ gc = "idle"
  /\ losses = 0

Next ==
  \/ \E c \in Creators : LinkClaim(c) \/ FlushClaim(c) \/ LinkName(c) \/ FlushName(c) \/ CheckFloor(c)
  \/ List \/ RaiseFloor \/ DeleteNames \/ DeleteClaim \/ FlushDeletion \/ PowerLoss

Spec == Init /\ [][Next]_vars

\* A key is given to one creator only, ever; and no two files of one key are ever seen.
OneCreator == Cardinality(told) <= 1 /\ Cardinality(seen \cup told) <= 1

\* A file that its creator, or another one, was told of is there, power loss or not, until retention
\* takes it. (A deletion that raised no floor yet is a planted bug.)
CreatedStays == floor \/ gc # "idle" \/ (told \cup exists) \subseteq dnames

Symmetric == Permutations(Creators)
=============================================================================
