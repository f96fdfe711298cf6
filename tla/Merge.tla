------------------------------- MODULE Merge -------------------------------
(* One value of the cache on its replicas (r = 3.2): a chunk, of which the longer value wins, or a      *)
(* length, which merges by maximum. To the model they are the same: a number that only grows, 0 for     *)
(* nothing. Replicas die and start again empty, the memory of the dead reads on for a while, the ring   *)
(* changes, values expire.                                                                              *)
(*                                                                                                      *)
(* Design rule 3, "Longer wins". What must hold:                                                        *)
(*   - on a replica a value never shrinks, whatever writers duel, unless the replica loses everything   *)
(*     or the value expires;                                                                            *)
(*   - a read sees every write that was acknowledged before the read began and is not expired, while    *)
(*     replicas fail one at a time, at any step of a change of the ring; and when they fail together,   *)
(*     every write that was acknowledged since the cell's cache epoch rose for it;                      *)
(*   - a client's idea of a length never falls, whatever fails;                                         *)
(*   - two values that contradict each other are never mixed and never pass in silence.                 *)
(*                                                                                                      *)
(* Wholeness. A replica is whole *for a ring* when two whole ones of any three owners know everything   *)
(* that was acknowledged. One that is not accepts writes and is read as a lower bound; its "absent" and *)
(* its votes, on writes and on reads, don't count. It becomes whole after it has rested (longer than    *)
(* any write that may count an acknowledgement of its former life, and longer than any reader may read  *)
(* the memory that the former life left) and then has copied from each other owner, who was whole.      *)
(* An owner who lost everything before another one was whole again can't be copied; the scheduler says  *)
(* so: the epoch rises, what was acknowledged under the one before may be lost, and whoever was not     *)
(* whole at that moment is excused: nobody copies from it before it has been whole again.               *)
(*                                                                                                      *)
(* The change of the ring from Old to New, in durable phases:                                           *)
(*   phase     a write needs two votes of     a read needs two votes of                                 *)
(*   old       Old                            Old                                                       *)
(*   both      Old, and New                   Old                  New are filled, from Old             *)
(*   new       Old, and New                   New                  Old that leave invalidate themselves *)
(*   drained   New                            New                                                       *)
(* In "both" the change may be taken back, to "old": who acts on "both" is no danger, as what he writes *)
(* reaches two of Old; and what was filled counts for nothing when the ring changes again.             *)
(* A client may act on any phase that there was. Neighbours agree by their quorums. Beyond that: a      *)
(* replica that knows "both" refuses writes of "old", and is filled from only after that; "new" needs   *)
(* all of New whole; "drained" needs every replica that leaves unreadable, by its own hand or because   *)
(* its lease has passed and all readers gave it up. A replica that has invalidated itself may           *)
(* acknowledge whatever it is given, as nobody will miss it there.                                      *)
(*                                                                                                      *)
(* Expiry and collection. A value has a time to live; the guarantee ends with it. A server short of     *)
(* memory may forget a value earlier: that is counted, and what was acknowledged of this value is void. *)
(*                                                                                                      *)
(* Abstractions. One key. One write and one read under way at once. A write is delivered to each        *)
(* replica by itself, at any time, or never; it begins with its first delivery, and is acknowledged     *)
(* with the one that makes its quorum, and ends. A read begins with its first answer that counts and    *)
(* ends with the second; answers that don't count could only add to it, so they are left out. Time      *)
(* passes when it may: "rested" is not a duration but what it is for. A value is <<version, length>>:   *)
(* version 2 are bytes that contradict version 1, which a correct system never writes. A client learns  *)
(* of a new configuration at any time, and never in the middle of a call: who becomes whole while a     *)
(* write is under way has no vote on it, nor has, on a write of "old", who does after "both" began. A   *)
(* replica that starts learns the phase of that moment, as it registers first.                          *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Old, New,     \* the replicas of the key before and after the change of the ring
  MaxValue,
  MaxWrites,
  MaxRestarts,
  MaxEpochs,
  MaxTicks,     \* 0: nothing expires
  MaxCollected, \* values forgotten before their time
  Together,     \* TRUE: replicas may restart while another one is not whole
  Moving,       \* TRUE: the ring changes
  TakenBack,    \* TRUE: and the change may be taken back
  Wrong,        \* TRUE: somebody writes contradicting bytes
  Remembers,    \* TRUE: look at what a client remembers
  Bug           \* "none", or the planted bug; each is described where it is

VARIABLES
  phase,        \* "old", "both", "new", "drained": the durable record
  view,         \* replica -> the phase that it knows
  gone,         \* the replicas that made their memory unreadable for good
  val,          \* replica -> [ver, len, exp]
  heard,        \* replica -> versions that it was given since it was last empty
  dropped,      \* replica -> has it counted a mismatch since then?
  whole,        \* ring -> the replicas that are whole for it
  rested,       \* replica -> may it copy?
  copied,       \* replica -> <<ring, replica>> it copied from, while that one was whole for the ring
  ghost,        \* replica -> the memory of its former life, if that is still read
  excused,      \* ring -> who has not been whole since the epoch rose
  recent,       \* who has become whole for Old since the ring began to change
  epoch,
  wr,           \* the write under way
  writes,
  acked,        \* the greatest value that was acknowledged in this epoch
  rd,           \* the read under way
  stale,        \* has a read ever missed what was acknowledged before it began?
  mine,         \* the client's idea of the value
  restarts,
  collected,
  now

vars == <<phase, view, gone, val, heard, dropped, whole, rested, copied, ghost, excused, recent, epoch, wr,
          writes, acked, rd, stale, mine, restarts, collected, now>>
ring == <<phase, view, gone>>
memory == <<val, heard, dropped>>
health == <<whole, rested, copied, ghost, excused, recent>>
calls == <<wr, writes, acked, rd, stale, mine>>
world == <<epoch, restarts, collected, now>>

Replicas == Old \cup New
Rings == {"O", "N"}
Of(r) == IF r = "O" THEN Old ELSE New
Phases == <<"old", "both", "new", "drained">>
At(p) == CHOOSE i \in 1 .. 4 : Phases[i] = p
Before(a, b) == At(a) < At(b)

Ttl == 2
Empty == [ver |-> 1, len |-> 0, exp |-> 0]
NoMemory == [on |-> FALSE, val |-> Empty, whole |-> {}]
NoWrite == [on |-> FALSE, ver |-> 1, len |-> 0, conf |-> "old", epoch |-> 0, got |-> {},
            votes |-> {}, lost |-> {}, late |-> {}, exp |-> 0]
NoRead == [on |-> FALSE, ring |-> "O", epoch |-> 0, first |-> 0, best |-> 0, floor |-> 0, until |-> 0]
Nothing == [len |-> 0, exp |-> 0]

Greater(a, b) == IF a > b THEN a ELSE b
Lesser(a, b) == IF a < b THEN a ELSE b
Expired(v) == MaxTicks > 0 /\ v.exp <= now
Length(v) == IF Expired(v) THEN 0 ELSE v.len

\* The merge of a value into what a replica has. The longer one also keeps the later expiry: it stands
\* for the shorter one, too. A write of what is there, or of less, does not refresh it; a copy carries the
\* time that was left to it elsewhere.
Join(have, given, copy) ==
  IF Bug = "last_write_wins" THEN given
  ELSE IF have.len = 0 \/ Expired(have) THEN given
  ELSE IF given.len = 0 \/ Expired(given) THEN have
  ELSE IF have.ver # given.ver /\ Bug # "mismatch_longer" THEN Empty
  ELSE IF given.len > have.len
    THEN [given EXCEPT !.exp = IF Bug = "expiry_of_the_longer" THEN @ ELSE Greater(@, have.exp)]
  ELSE IF copy /\ Bug # "expiry_not_carried" THEN [have EXCEPT !.exp = Greater(@, given.exp)]
  ELSE have

Give(r, v, copy) ==
  /\ val' = [val EXCEPT ![r] = Join(@, v, copy)]
  /\ heard' = [heard EXCEPT ![r] =
       IF ~Wrong \/ Length(v) = 0 THEN @ ELSE (IF Expired(val[r]) THEN {} ELSE @) \cup {v.ver}]
  /\ dropped' = [dropped EXCEPT ![r] =
       @ \/ (Bug # "mismatch_longer" /\ Length(val[r]) > 0 /\ Length(v) > 0 /\ val[r].ver # v.ver)]

Two(votes, x) == Cardinality({r \in Of(x) : <<x, r>> \in votes}) >= 2

WriteQuorum(votes, conf) ==
  CASE conf = "old" -> Two(votes, "O")
    [] conf = "drained" -> Two(votes, "N")
    [] conf = "both" -> IF Bug = "one_ring" THEN Two(votes, "O") \/ Two(votes, "N")
                        ELSE Two(votes, "O") /\ Two(votes, "N")
WriteTo(conf) == CASE conf = "old" -> Old [] conf = "both" -> Old \cup New [] conf = "drained" -> New
\* A client may act on any configuration that there was. (Writes of "new" are those of "both", reads of
\* "both" those of "old", reads of "drained" those of "new".)
WrittenIn == {p \in {"old", "both", "drained"} : ~Before(phase, p) \/ (TakenBack /\ p = "both")}
ReadFrom == IF Before(phase, "new") THEN {"O"} ELSE Rings

-----------------------------------------------------------------------------
\* The votes of a replica that takes a write. In "both" nobody reads New, and whoever is not whole yet is
\* filled from Old once more: a vote for New needs no wholeness.
VotesOf(r) ==
  {<<x, r>> : x \in {y \in Rings :
    /\ r \in Of(y)
    /\ \/ r \in whole[y] /\ (<<y, r>> \notin wr.late \/ Bug = "late_votes")
       \/ r \in gone /\ rested[r] /\ ~Before(view[r], "new")
       \/ y = "N" /\ Before(view[r], "new")
       \/ Bug = "empty_votes"}}

\* A replica that knows of the change refuses the old configuration.
Accepts(r, conf) == conf # "old" \/ view[r] = "old" \/ Bug = "old_writes_accepted"

\* Replica r takes write w, and these votes of it are counted. What was begun under an older epoch counts for nothing: who wrote it will hear
\* of the new epoch and write it again.
Deliver(w, r, counted) ==
  /\ r \in WriteTo(w.conf) \ w.got
  /\ Accepts(r, w.conf)
  /\ IF r \in gone THEN UNCHANGED memory
     ELSE Give(r, [ver |-> w.ver, len |-> w.len, exp |-> now + Ttl], FALSE)
  /\ LET votes == w.votes \cup counted
         \* how long it is sure to stay
         exp == IF counted = {} \/ r \in gone THEN w.exp ELSE Lesser(w.exp, val'[r].exp)
         enough == WriteQuorum(votes, w.conf)
     IN /\ wr' = IF enough THEN NoWrite ELSE [w EXCEPT !.got = @ \cup {r}, !.votes = votes, !.exp = exp]
        /\ acked' = IF /\ enough
                       /\ w.epoch = epoch \/ Bug = "epoch_forgotten"
                       /\ ~(MaxTicks > 0 /\ exp <= now)
                       /\ w.len > acked.len \/ (MaxTicks > 0 /\ acked.exp <= now)
                    THEN [len |-> w.len, exp |-> IF MaxTicks > 0 THEN exp ELSE 0] ELSE acked
  /\ UNCHANGED <<ring, health, rd, stale, mine, world>>

\* Whom a client that acts on this configuration can't know as whole.
Unknown(conf) == IF conf = "old" THEN {<<"O", r>> : r \in recent} ELSE {}

\* A write of any value, also of one that is shorter than what is there: that is a duel.
WriteBegin(r, conf, ver, len) ==
  /\ ~wr.on
  /\ writes < MaxWrites
  /\ conf \in WrittenIn
  /\ writes' = writes + 1
  /\ Deliver([NoWrite EXCEPT !.on = TRUE, !.ver = ver, !.len = len,
                           !.conf = conf, !.epoch = epoch, !.late = Unknown(conf),
                           !.exp = MaxTicks + Ttl], r,
             VotesOf(r) \ (IF Bug = "late_votes" THEN {} ELSE Unknown(conf)))

WriteDeliver(r) ==
  /\ wr.on
  /\ Deliver(wr, r, VotesOf(r))
  /\ UNCHANGED writes

\* It is given up.
WriteEnd ==
  /\ wr.on
  /\ wr' = NoWrite
  /\ UNCHANGED <<ring, memory, health, writes, acked, rd, stale, mine, world>>

-----------------------------------------------------------------------------
\* Replica r, or what is left of its memory, answers v, and that counts as a vote.
Answer(x, r, v) ==
  LET read == IF rd.on THEN rd
              ELSE [NoRead EXCEPT !.ring = x, !.floor = acked.len, !.until = acked.exp, !.epoch = epoch]
      best == Greater(read.best, Length(v))
      ended == rd.on \/ Bug = "one_answers"
  IN /\ IF rd.on THEN x = rd.ring /\ r # rd.first ELSE x \in ReadFrom
     /\ r \in Of(x)
     /\ rd' = IF ended THEN NoRead ELSE [read EXCEPT !.on = TRUE, !.first = r, !.best = best]
     /\ stale' = (stale \/ /\ ended /\ read.epoch = epoch
                           /\ best < read.floor /\ ~(MaxTicks > 0 /\ read.until <= now))
     /\ mine' = IF ended /\ Remembers THEN (IF Bug = "client_forgets" THEN best ELSE Greater(mine, best))
                ELSE mine
     /\ UNCHANGED <<ring, memory, health, wr, writes, acked, world>>

\* A read that begins before anything was acknowledged can miss nothing.
MayMiss == rd.on \/ Length(acked) > 0

Read(x, r) ==
  /\ MayMiss
  /\ r \notin gone
  \* planted: the "nothing there" of an empty replica is an answer
  /\ r \in whole[x] \/ Bug = "empty_answers"
  /\ Answer(x, r, val[r])

\* A reader that has not noticed the death.
ReadGhost(x, r) ==
  /\ MayMiss
  /\ ghost[r].on
  /\ x \in ghost[r].whole
  /\ Answer(x, r, ghost[r].val)

\* Not enough answered in time: the answer is "partial".
ReadGiveUp ==
  /\ rd.on
  /\ rd' = NoRead
  /\ UNCHANGED <<ring, memory, health, wr, writes, acked, stale, mine, world>>

-----------------------------------------------------------------------------
\* What a replica that asks is told: from "new" on it does nothing else.
Learnt == IF Before(phase, "new") THEN phase ELSE "new"

\* The ring whose wholeness keeps what was acknowledged.
Reference == IF phase \in {"old", "both"} THEN "O" ELSE "N"

\* A replica dies and starts again, empty. Its former memory may be read on; one that dies before that
\* has ended was not whole again, so that nobody reads what it leaves.
StartAgain(r) ==
  /\ restarts' = restarts + 1
  /\ ghost' = [ghost EXCEPT ![r] =
       IF @.on THEN @
       ELSE IF r \in gone \/ \A x \in Rings : r \notin whole[x] THEN NoMemory
       ELSE [on |-> TRUE, val |-> val[r], whole |-> {x \in Rings : r \in whole[x]}]]
  /\ val' = [val EXCEPT ![r] = Empty]
  /\ heard' = [heard EXCEPT ![r] = {}]
  /\ dropped' = [dropped EXCEPT ![r] = FALSE]
  \* planted: a newcomer that was filled needn't be filled again
  /\ whole' = [x \in Rings |-> IF Bug = "filled_once" /\ r \notin Old THEN whole[x] ELSE whole[x] \ {r}]
  /\ rested' = [rested EXCEPT ![r] = FALSE]
  /\ copied' = [copied EXCEPT ![r] = {}]
  /\ view' = [view EXCEPT ![r] = Learnt]
  /\ wr' = [wr EXCEPT !.lost = IF r \in wr.got THEN @ \cup {r} ELSE @, !.got = @ \ {r}]
  /\ UNCHANGED <<phase, gone, excused, recent, epoch, writes, acked, rd, stale, mine, collected, now>>

Restart(r) ==
  /\ restarts < MaxRestarts
  /\ ~ghost[r].on
  /\ Together \/ Of(Reference) \ {r} \subseteq whole[Reference]
  /\ StartAgain(r)

\* Writes that may count an acknowledgement of the former life have ended, and nobody reads its memory.
Rest(r) ==
  /\ ~rested[r]
  /\ r \notin wr.lost \/ Bug \in {"repaired_at_once", "rests_after_copying"}
  /\ rested' = [rested EXCEPT ![r] = TRUE]
  /\ ghost' = CASE Bug = "ghost_not_awaited" -> ghost
                [] Bug = "elder_returns" -> [ghost EXCEPT ![r].on = FALSE]
                [] OTHER -> [ghost EXCEPT ![r] = NoMemory]
  /\ UNCHANGED <<ring, memory, whole, copied, excused, recent, calls, world>>

\* The former life was not dead but stopped, and wakes when another one has its name. The registry
\* refuses it for good, so that this is no step of the system.
\* planted: it gets its name back, and counts for whole with what it has
ElderReturns(r) ==
  /\ Bug = "elder_returns"
  /\ ~ghost[r].on
  /\ ghost[r].whole # {}
  /\ val' = [val EXCEPT ![r] = ghost[r].val]
  /\ whole' = [x \in Rings |-> IF x \in ghost[r].whole THEN whole[x] \cup {r} ELSE whole[x]]
  /\ ghost' = [ghost EXCEPT ![r] = NoMemory]
  /\ UNCHANGED <<phase, view, gone, heard, dropped, rested, copied, excused, recent, epoch, wr, writes, acked, rd, stale,
                 mine, restarts, collected, now>>

\* For which rings a copy from q counts: those for which q is whole.
Counts(q) ==
  LET rings == CASE phase \in {"old", "both"} -> {"O"} [] phase = "new" -> Rings [] OTHER -> {"N"}
  IN CASE Bug = "copied_from_empty" -> rings
       [] Bug = "repair_is_filling" -> {x \in rings : q \in whole[x]} \cup {"N"}
       [] OTHER -> {x \in rings : q \in whole[x]}

\* The rings that r has to become whole for.
Missing(r) ==
  {x \in Rings : r \in Of(x) \ whole[x]
                 /\ x # (CASE phase = "old" -> "N" [] phase = "drained" -> "O" [] OTHER -> "")}

Copy(r, q) ==
  /\ r # q
  /\ rested[r]
  /\ Missing(r) # {}
  /\ r \notin gone /\ q \notin gone
  /\ Counts(q) # {}
  \* Who is filled copies only from those that refuse the writes of "old".
  /\ r \in Old \/ view[q] # "old" \/ Bug = "moved_early"
  /\ ~(\A x \in Counts(q) : <<x, q>> \in copied[r])
  /\ Give(r, val[q], TRUE)
  /\ copied' = [copied EXCEPT ![r] = @ \cup {<<x, q>> : x \in Counts(q)}]
  /\ UNCHANGED <<ring, whole, rested, ghost, excused, recent, calls, world>>

\* From each other owner, since any may be the only one that still has a write.
CopiedAll(r, x) ==
  LET rest == Of(x) \ ({r} \cup (IF Bug = "never_excused" THEN {} ELSE excused[x]))
      done == {q \in rest : <<x, q>> \in copied[r]}
  IN IF Bug = "repaired_from_one" THEN done # {} \/ rest = {} ELSE done = rest

\* A newcomer's: two of the old ones make a quorum.
CopiedTwo(r) ==
  LET done == {q \in Old : <<"O", q>> \in copied[r]}
  IN \/ Cardinality(done) >= (IF Bug = "filled_from_one" THEN 1 ELSE 2)
     \/ Old \ excused["O"] \subseteq done

MayBeWhole(r, x) ==
  /\ r \in Of(x) \ whole[x]
  /\ rested[r]
  /\ r \notin wr.lost \/ Bug # "rests_after_copying"
  /\ IF x = "O" THEN CopiedAll(r, "O")
     ELSE CASE phase = "old" -> FALSE
            \* planted: a newcomer is filled by a repair, from the others of New, whole or not
            [] phase = "both" -> r \notin Old /\ (CopiedTwo(r) \/ (Bug = "repair_is_filling" /\ CopiedAll(r, "N")))
            [] OTHER -> CopiedAll(r, "N")

\* While New are filled from Old, who is in both rings is whole for both or for none.
WholeNow(r, x) == IF phase = "both" /\ x = "O" /\ r \in New THEN Rings ELSE {x}

\* The votes that it does not get with the write under way. (Who is filled in "both" has a vote, whole or not.)
LateIn(r, x) == IF x = "N" /\ phase = "both" THEN {} ELSE {<<x, r>>}

\* Who is in the ring and not whole needs no copy of one that was excused until now, even if it hears of
\* that later: while at most the two others are whole, both know what is acknowledged in this epoch.
Admit(r, x) ==
  /\ whole' = [y \in Rings |-> IF y \in WholeNow(r, x) THEN whole[y] \cup {r} ELSE whole[y]]
  /\ excused' = [excused EXCEPT ![x] = @ \ {r}]
  /\ copied' = [p \in Replicas |->
       IF p = r THEN (IF Missing(r) \subseteq WholeNow(r, x) THEN {} ELSE copied[r])
       ELSE IF r \in excused[x] /\ p \in Of(x) \ whole[x] THEN copied[p] \cup {<<x, r>>}
       ELSE copied[p]]
  /\ recent' = IF x = "O" /\ phase = "both" THEN recent \cup {r} ELSE recent
  \* planted: its vote on the write under way counts
  /\ wr' = IF wr.on THEN [wr EXCEPT !.late = @ \cup LateIn(r, x)] ELSE wr
  /\ UNCHANGED <<ring, memory, rested, ghost, writes, acked, rd, stale, mine, world>>

BecomeWhole(r, x) ==
  /\ MayBeWhole(r, x)
  /\ Admit(r, x)

\* Two have lost everything: nobody can say any more what they had acknowledged together.
RaiseEpoch ==
  /\ epoch < MaxEpochs
  /\ Cardinality(Of(Reference) \ whole[Reference]) >= 2
  /\ ~(Of(Reference) \ whole[Reference] \subseteq excused[Reference])
  /\ epoch' = epoch + 1
  /\ excused' = [excused EXCEPT ![Reference] = @ \cup (Of(Reference) \ whole[Reference])]
  /\ acked' = IF Bug = "silent_loss" THEN acked ELSE Nothing
  /\ UNCHANGED <<ring, memory, whole, rested, copied, ghost, recent, wr, writes, rd, stale, mine, restarts, collected, now>>

-----------------------------------------------------------------------------
\* The change of the ring.
\* What replicas know before it.
Views == [r \in Replicas |-> IF r \in Old THEN "old" ELSE "both"]

MoveBoth ==
  /\ Moving
  /\ phase = "old"
  /\ phase' = "both"
  /\ whole' = [whole EXCEPT !["N"] = whole["O"] \cap New]
  /\ UNCHANGED <<view, gone, memory, rested, copied, ghost, excused, recent, calls, world>>

MoveTo(p) ==
  /\ phase' = p
  /\ UNCHANGED <<view, gone, memory, health, calls, world>>

MoveNew ==
  /\ phase = "both"
  /\ New \subseteq whole["N"] \/ Bug = "unfilled"
  /\ MoveTo("new")

MoveDrained ==
  /\ phase = "new"
  /\ \A r \in Old \ New : (r \in gone /\ ~ghost[r].on) \/ Bug = "left_readable"
  /\ MoveTo("drained")

\* Replicas learn of it when they learn of another change, or of none: until then they refuse too much.
MoveBack ==
  /\ TakenBack
  /\ phase = "both"
  /\ phase' = "old"
  /\ view' = Views
  /\ whole' = [whole EXCEPT !["N"] = {}]
  \* planted: who was filled need not be filled again
  /\ copied' = IF Bug = "kept_filled" THEN copied
               ELSE [r \in Replicas |-> IF r \in Old THEN copied[r] ELSE {}]
  /\ recent' = {}
  /\ UNCHANGED <<gone, memory, rested, ghost, excused, calls, world>>

Renew(r) ==
  /\ Before(view[r], Learnt)
  /\ view' = [view EXCEPT ![r] = Learnt]
  /\ UNCHANGED <<phase, gone, memory, health, calls, world>>

\* A replica that leaves, or that the scheduler has not heard of for so long that every reader has given
\* it up and it will invalidate itself before its heart beats again.
Invalidate(r) ==
  /\ r \in Old \ New
  /\ ~Before(phase, "new")
  /\ r \notin gone
  /\ gone' = gone \cup {r}
  /\ UNCHANGED <<phase, view, memory, health, calls, world>>

-----------------------------------------------------------------------------
\* What was acknowledged of the value is void, also what is about to be and counts this replica, or one from
\* which this replica has copied.
Collect(r) ==
  /\ collected < MaxCollected
  /\ Length(val[r]) > 0
  /\ collected' = collected + 1
  /\ val' = [val EXCEPT ![r] = Empty]
  /\ acked' = IF val[r].len >= acked.len /\ Bug # "collected_in_silence" THEN Nothing ELSE acked
  /\ rd' = IF val[r].len >= rd.floor /\ Bug # "collected_in_silence" THEN [rd EXCEPT !.floor = 0] ELSE rd
  /\ wr' = IF val[r].len >= wr.len /\ Bug # "collected_in_silence"
           THEN [wr EXCEPT !.votes = IF r \in wr.got THEN @ \ {<<x, r>> : x \in Rings} ELSE {}] ELSE wr
  /\ UNCHANGED <<ring, heard, dropped, health, writes, stale, mine, epoch, restarts, now>>

Tick ==
  /\ now < MaxTicks
  /\ now' = now + 1
  /\ UNCHANGED <<ring, memory, health, calls, epoch, restarts, collected>>

Init ==
  /\ phase = "old"
  /\ view = Views
  /\ gone = {}
  /\ val = [r \in Replicas |-> Empty]
  /\ heard = [r \in Replicas |-> {}]
  /\ dropped = [r \in Replicas |-> FALSE]
  /\ whole = [x \in Rings |-> IF x = "O" THEN Old ELSE {}]
  /\ rested = [r \in Replicas |-> TRUE]
  /\ copied = [r \in Replicas |-> {}]
  /\ ghost = [r \in Replicas |-> NoMemory]
  /\ excused = [x \in Rings |-> {}]
  /\ recent = {}
  /\ epoch = 0
  /\ wr = NoWrite
  /\ writes = 0
  /\ acked = Nothing
  /\ rd = NoRead
  /\ stale = FALSE
  /\ mine = 0
  /\ restarts = 0
  /\ collected = 0
  /\ now = 0

Next ==
  \/ \E r \in Replicas :
       \/ \E conf \in WrittenIn, ver \in (IF Wrong THEN {1, 2} ELSE {1}), len \in 1 .. MaxValue :
            WriteBegin(r, conf, ver, len)
       \/ WriteDeliver(r)
       \/ Restart(r) \/ Collect(r) \/ Rest(r) \/ ElderReturns(r) \/ Renew(r) \/ Invalidate(r)
       \/ \E q \in Replicas : Copy(r, q)
       \/ \E x \in Rings : Read(x, r) \/ ReadGhost(x, r) \/ BecomeWhole(r, x)
  \/ WriteEnd \/ ReadGiveUp \/ RaiseEpoch \/ Tick
  \/ MoveBoth \/ MoveNew \/ MoveDrained \/ MoveBack

Spec == Init /\ [][Next]_vars
\* Replicas that have the same places in both rings are alike.
Alike == Permutations(Old \cap New) \cup Permutations(Old \ New) \cup Permutations(New \ Old)

-----------------------------------------------------------------------------
\* A read sees what was acknowledged before it began.
ReadsSeeAcked == ~stale

\* While replicas fail one at a time, two are whole, so whoever knows the newest phase can read and write.
Readable == ~Together => Cardinality(Of(Reference) \cap whole[Reference]) >= 2

\* On a replica a value shrinks only when the replica restarts, drops a contradiction or collects, or when
\* the value expires.
ValuesGrow ==
  [][\A r \in Replicas :
       \/ val'[r].len >= val[r].len \/ restarts' # restarts \/ collected' # collected \/ Expired(val[r])
       \/ (dropped'[r] /\ val'[r].len = 0)]_vars

\* A client's length never falls.
ClientNeverFalls == [][mine' >= mine]_vars

\* A replica that was given contradicting values has counted it, and holds a value of one version only.
MismatchCounted == \A r \in Replicas : Cardinality(heard[r]) > 1 => dropped[r]

\* Once nothing dies any more, all are whole again and the change ends. Fair: time passes, replicas copy,
\* the scheduler does its steps. Nobody has to read or write.
Fairness ==
  /\ \A r \in Replicas :
       /\ WF_vars(Rest(r)) /\ WF_vars(Renew(r)) /\ WF_vars(Invalidate(r))
       /\ \A q \in Replicas : WF_vars(Copy(r, q))
       /\ \A x \in Rings : WF_vars(BecomeWhole(r, x))
  /\ WF_vars(WriteEnd) /\ WF_vars(RaiseEpoch) /\ WF_vars(MoveBoth) /\ WF_vars(MoveNew) /\ WF_vars(MoveDrained)
LiveSpec == Spec /\ Fairness
Settles == <>[](IF Moving THEN phase = "drained" /\ New \subseteq whole["N"] ELSE Old \subseteq whole["O"])
=============================================================================
