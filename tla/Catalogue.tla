------------------------------ MODULE Catalogue ------------------------------
(***************************************************************************)
(* One name of the deployment's streams: who gives it, who takes it away,  *)
(* and what every cell knows of that.                                      *)
(*                                                                         *)
(*   create = reserve the name in the source, durably; ask every other     *)
(*            cell, which agrees unless it has or reserves the name; when  *)
(*            all have agreed, record the stream.                          *)
(*   delete = record in the source that it is gone and whom to tell; tell  *)
(*            each cell until it has recorded it.                          *)
(*   A cell that has the stream hands it on; one that knows it deleted, or *)
(*   has another incarnation, does not take it.                            *)
(*                                                                         *)
(* Messages are never lost for ever, and may come at any later time, once  *)
(* more too: a partition is a message that comes late. A scheduler that    *)
(* begins drops the reservation of the one before it, which may still run  *)
(* and believe what it last knew: it can write nothing, so its answers     *)
(* count for nothing, as an answer comes after a write.                    *)
(*                                                                         *)
(* Abstracted: one name; a write is one step; a source gives up a          *)
(* reservation at any time, so that refusals and time-outs need no steps   *)
(* (and who goes on of two that wait for each other does not matter);      *)
(* any cell may hand a stream to any other, which covers every tree.       *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Cells,
  MaxIncarnations,
  MaxCrashes,
  Bug          \* "none", or the planted bug; each is described where it is

ASSUME Bug \in {"none", "nobodyAsked", "silenceAgrees", "notReserved", "answeredWithoutWrite",
                "toldInMemory", "unknownNotRecorded", "youngerWins"}

VARIABLES
  next,       \* the next incarnation
  source,     \* incarnation -> its cell
  reserved,   \* cell -> the incarnation whose name it reserves, or None; durable
  has,        \* cell -> the incarnation in its catalogue, or None; durable
  deleted,    \* cell -> incarnations that it knows deleted; durable
  toTell,     \* cell -> <<incarnation, cell>> of its deletions that are not recorded there; durable
  stale,      \* cell -> what the scheduler before the last crash knew: <<reserved, has>>
  messages,   \* all that were ever sent
  created,    \* ghost: incarnations whose creation was answered
  crashes

vars == <<next, source, reserved, has, deleted, toTell, stale, messages, created, crashes>>

None == 0
Incarnations == 1 .. MaxIncarnations

Init ==
  /\ next = 1
  /\ source = [i \in Incarnations |-> None]
  /\ reserved = [c \in Cells |-> None]
  /\ has = [c \in Cells |-> None]
  /\ deleted = [c \in Cells |-> {}]
  /\ toTell = [c \in Cells |-> {}]
  /\ stale = [c \in Cells |-> <<None, None, FALSE>>]
  /\ messages = {}
  /\ created = {}
  /\ crashes = 0

(***************************************************************************)
(* Creation                                                                *)
(***************************************************************************)
Reserve(c) ==
  /\ next <= MaxIncarnations
  /\ has[c] = None /\ reserved[c] = None
  /\ next' = next + 1
  /\ source' = [source EXCEPT ![next] = c]
  /\ reserved' = [reserved EXCEPT ![c] = next]
  /\ UNCHANGED <<has, deleted, toTell, stale, messages, created, crashes>>

\* The question is on its way to all as soon as the reservation is durable.
Asked(i) == source[i] # None

Free(reservation, stream) ==
  \* planted: a cell looks at its streams only
  /\ stream = None /\ (Bug # "notReserved" => reservation = None)

Agree(d, i) ==
  /\ Asked(i) /\ source[i] # d
  /\ \/ Free(reserved[d], has[d])
     \* planted: a scheduler that was replaced answers from what it knew
     \/ Bug = "answeredWithoutWrite" /\ stale[d][3] /\ Free(stale[d][1], stale[d][2])
  /\ messages' = messages \cup {<<"agreed", i, d>>}
  /\ UNCHANGED <<next, source, reserved, has, deleted, toTell, stale, created, crashes>>

AllAgree(c, i) ==
  LET agreed == {d \in Cells : <<"agreed", i, d>> \in messages}
      others == Cells \ {c}
  IN CASE Bug = "nobodyAsked" -> TRUE
       \* planted: one that is silent has nothing against it
       [] Bug = "silenceAgrees" -> Cardinality(others \ agreed) <= 1
       [] OTHER -> others \subseteq agreed

Create(c) ==
  /\ reserved[c] # None
  /\ AllAgree(c, reserved[c])
  /\ has' = [has EXCEPT ![c] = reserved[c]]
  /\ created' = created \cup {reserved[c]}
  /\ reserved' = [reserved EXCEPT ![c] = None]
  /\ UNCHANGED <<next, source, deleted, toTell, stale, messages, crashes>>

GiveUp(c) ==
  /\ reserved[c] # None
  /\ reserved' = [reserved EXCEPT ![c] = None]
  /\ UNCHANGED <<next, source, has, deleted, toTell, stale, messages, created, crashes>>

(***************************************************************************)
(* Along the tree                                                          *)
(***************************************************************************)
HandOn(c, d) ==
  /\ c # d /\ has[c] # None /\ source[has[c]] # d
  /\ <<"install", has[c], d>> \notin messages
  /\ messages' = messages \cup {<<"install", has[c], d>>}
  /\ UNCHANGED <<next, source, reserved, has, deleted, toTell, stale, created, crashes>>

Install(d, i) ==
  /\ <<"install", i, d>> \in messages
  /\ i \notin deleted[d]
  \* planted: of two incarnations a cell keeps the one whose clock says more, whichever that is
  /\ has[d] = None \/ (Bug = "youngerWins" /\ has[d] # i)
  /\ has' = [has EXCEPT ![d] = i]
  /\ UNCHANGED <<next, source, reserved, deleted, toTell, stale, messages, created, crashes>>

(***************************************************************************)
(* Deletion                                                                *)
(***************************************************************************)
Delete(c) ==
  /\ has[c] # None /\ source[has[c]] = c
  /\ deleted' = [deleted EXCEPT ![c] = @ \cup {has[c]}]
  /\ toTell' = [toTell EXCEPT ![c] = @ \cup {<<has[c], d>> : d \in Cells \ {c}}]
  /\ has' = [has EXCEPT ![c] = None]
  /\ UNCHANGED <<next, source, reserved, stale, messages, created, crashes>>

Remove(d, i) ==
  /\ <<i, d>> \in toTell[source[i]]
  \* planted: only what is known is recorded as deleted; the rest may come yet
  /\ deleted' = IF Bug = "unknownNotRecorded" /\ has[d] # i THEN deleted
                ELSE [deleted EXCEPT ![d] = @ \cup {i}]
  /\ has' = IF has[d] = i THEN [has EXCEPT ![d] = None] ELSE has
  /\ messages' = messages \cup {<<"removed", i, d>>}
  /\ UNCHANGED <<next, source, reserved, toTell, stale, created, crashes>>

Told(c, i, d) ==
  /\ <<i, d>> \in toTell[c] /\ <<"removed", i, d>> \in messages
  /\ toTell' = [toTell EXCEPT ![c] = @ \ {<<i, d>>}]
  /\ UNCHANGED <<next, source, reserved, has, deleted, stale, messages, created, crashes>>

(***************************************************************************)
(* Another scheduler begins                                                *)
(***************************************************************************)
Crash(c) ==
  /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1
  /\ stale' = [stale EXCEPT ![c] = <<reserved[c], has[c], TRUE>>]
  /\ reserved' = [reserved EXCEPT ![c] = None]
  \* planted: whom to tell is known in memory only
  /\ toTell' = IF Bug = "toldInMemory" THEN [toTell EXCEPT ![c] = {}] ELSE toTell
  /\ UNCHANGED <<next, source, has, deleted, messages, created>>

Inform ==
  \/ \E d \in Cells, i \in Incarnations : source[i] # None /\ Remove(d, i)
  \/ \E c, d \in Cells, i \in Incarnations : Told(c, i, d)
  \/ \E c, d \in Cells : HandOn(c, d)
  \/ \E d \in Cells, i \in Incarnations : Install(d, i)

Next ==
  \/ \E c \in Cells : Reserve(c) \/ Create(c) \/ GiveUp(c) \/ Delete(c) \/ Crash(c)
  \/ \E d \in Cells, i \in Incarnations : Agree(d, i)
  \/ Inform

Safe == Init /\ [][Next]_vars

\* Schedulers tell again and again, and what they say arrives in the end.
Live ==
  /\ Safe
  /\ \A d \in Cells, i \in Incarnations :
       /\ WF_vars(source[i] # None /\ Remove(d, i))
       /\ WF_vars(Install(d, i))
       /\ \A c \in Cells : WF_vars(Told(c, i, d))
  /\ \A c, d \in Cells : WF_vars(HandOn(c, d))

(***************************************************************************)
(* Properties                                                              *)
(***************************************************************************)
TypeOK ==
  /\ next \in 1 .. MaxIncarnations + 1
  /\ source \in [Incarnations -> Cells \cup {None}]
  /\ reserved \in [Cells -> 0 .. MaxIncarnations]
  /\ has \in [Cells -> 0 .. MaxIncarnations]
  /\ created \subseteq Incarnations

Present(i) == source[i] # None /\ has[source[i]] = i

\* The name is one stream's in the whole deployment.
OneStream == Cardinality({i \in Incarnations : Present(i)}) <= 1

\* What was answered as created is there until its source deletes it.
CreatedStays == \A i \in created : Present(i) \/ i \in deleted[source[i]]

\* Whoever has a stream that is gone will be told.
AllTold ==
  \A d \in Cells :
    LET i == has[d] IN
      i # None => Present(i) \/ <<i, d>> \in toTell[source[i]]

\* In the end all cells have the same, whatever died or came late.
Present0 == IF \E i \in Incarnations : Present(i) THEN CHOOSE i \in Incarnations : Present(i)
            ELSE None
Converges == <>[](\A d \in Cells : has[d] = Present0)
=============================================================================
