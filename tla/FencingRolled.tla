--------------------------- MODULE FencingRolled ---------------------------
(* One primary file of the ceph driver: a row of append objects, and a manifest that says how long   *)
(* each object is that is no longer appended to. The counterpart of Fencing for an object store that *)
(* compares and changes one object atomically, but only one at a time, may carry a request out       *)
(* twice, and may lose its answer.                                                                   *)
(*                                                                                                   *)
(*   append = one operation on the open object: its epoch is mine, its length is what I know, and    *)
(*            append. Refused: look at the object; is it mine, and longer by my byte, then the       *)
(*            request came twice. Is it another's, and has not my byte, I am fenced.                 *)
(*   roll   = with no append under way: write the object's length into the manifest (if its epoch is *)
(*            mine, and as many are sealed as I know), then create the next object, exclusively,     *)
(*            with my epoch. Refused: look whose it is.                                              *)
(*   fence  = look at the manifest, raise its epoch if it is as it was: from here nobody else rolls. *)
(*            Then the epoch of the object that the manifest calls open (only upwards), or create    *)
(*            it, when the earlier owner did not come to it. With that request goes a look at the    *)
(*            object, which may land before it or after it: has it seen my epoch, the length that it *)
(*            saw is the object's; has it seen an earlier one, it looks again.                       *)
(*   read   = of an object that the manifest calls open, what is there; of another, up to its length *)
(*            in the manifest.                                                                       *)
(*                                                                                                   *)
(* These are the requests of rolled_takeover_core.h and rolled_append_core.h, in their order, and    *)
(* what the cores make of each reply. Every request lands once while its sender waits, or once more  *)
(* before the answer that reaches him (LandUnanswered), or once more at any time later (LandLate);   *)
(* or the sender gives up or dies, and it lands later, or never. MaxTwice bounds how many come       *)
(* twice; answers that are lost are bounded by MaxEpoch alone.                                       *)
(*                                                                                                   *)
(* Design rule 1, "Committed first". Abstractions: a byte is its own identity, an append has one. An *)
(* object is rolled at any length but 0. A landed request is durable (that is what the store         *)
(* promises), so there is no power loss. The file is not deleted, so the owner's look at the         *)
(* manifest after a creation is left out. A look changes nothing; its lost answer is GiveUp. Safety  *)
(* only.                                                                                             *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Writers, MaxEpoch, MaxBytes, MaxObjects, MaxTwice,
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  man,         \* the manifest: [e, sealed], sealed the lengths of the objects before the open one
  obj,         \* number -> [there, e, l, bytes]; l is the attribute that appends compare
  wr,          \* writer -> what its core knows: pc; in pc "append" to "whyappend" the byte b; in pc "fence" what
               \* the look that went with the fence has seen
  late,        \* requests that may still land, and whose answer nobody waits for
  twice,       \* how many requests came twice
  made,        \* bytes ever made
  wrong,       \* whether ever a byte was acknowledged that was not in the file, at the position told
  refused      \* bytes whose producer was told that they are not, and will not be, in the file

vars == <<man, obj, wr, late, twice, made, wrong, refused>>

Objects == 1 .. MaxObjects
NotSeen == [e |-> 0, l |-> 0]
Idle == [pc |-> "idle", e |-> 0, sealed |-> <<>>, len |-> 0, b |-> 0, seen |-> NotSeen]
NoObject == [there |-> FALSE, e |-> 0, l |-> 0, bytes |-> <<>>]

RECURSIVE Sum(_)
Sum(s) == IF s = <<>> THEN 0 ELSE s[1] + Sum(Tail(s))
Min(a, b) == IF a < b THEN a ELSE b

\* The object that a writer takes for the open one.
Open(w) == Len(wr[w].sealed) + 1

\* The file as a reader with these sealed lengths sees it: objects up to their lengths, then the open one.
RECURSIVE Sealed(_, _)
Sealed(m, o) ==
  IF o > Len(m) THEN <<>>
  ELSE SubSeq(obj[o].bytes, 1, Min(m[o], Len(obj[o].bytes))) \o Sealed(m, o + 1)
FileBy(m) == Sealed(m, 1) \o IF Len(m) < MaxObjects THEN obj[Len(m) + 1].bytes ELSE <<>>
File == FileBy(man.sealed)

-----------------------------------------------------------------------------
(* The store: what becomes of a request, whenever it lands. *)

\* k: what; o: the object (of "raise" and "seal": the one behind those that are sealed); e: the epoch of
\* the sender (of "raise": that he read); l, b: length and byte of an append, l: of a seal.
Request(k, o, e, l, b) == [k |-> k, o |-> o, e |-> e, l |-> l, b |-> b]

Outcome(r) ==
  CASE r.k = "raise" ->
         \* planted: a takeover does not compare how many objects are sealed
         IF man.e = r.e /\ (Len(man.sealed) = r.o - 1 \/ Bug = "raise_count_not_guarded")
         THEN "done" ELSE "refused"
    [] r.k = "seal" ->
         \* planted: a roll does not compare the manifest's epoch, or not how many objects are sealed
         IF /\ man.e = r.e \/ Bug = "manifest_not_guarded"
            /\ Len(man.sealed) = r.o - 1 \/ (Bug = "seal_count_not_guarded" /\ Len(man.sealed) < MaxObjects)
         THEN "done" ELSE "refused"
    [] r.k = "create" ->
         \* planted: the next object is created over one that is there
         IF ~obj[r.o].there \/ Bug = "create_not_exclusive" THEN "done" ELSE "exists"
    [] r.k = "fence" ->
         IF ~obj[r.o].there THEN "absent"
         \* planted: a fencer that slept lowers the epoch of an object
         ELSE IF obj[r.o].e < r.e \/ Bug = "epoch_not_guarded" THEN "done" ELSE "refused"
    [] r.k = "append" ->
         IF ~obj[r.o].there THEN "absent"
         \* planted: an append does not compare the epoch, or not the length
         ELSE IF /\ obj[r.o].e = r.e \/ Bug = "append_not_guarded"
                 /\ obj[r.o].l = r.l \/ Bug = "length_not_guarded"
              THEN "done" ELSE "refused"

Land(r) ==
  IF Outcome(r) # "done" THEN UNCHANGED <<man, obj>>
  ELSE CASE r.k = "raise" -> /\ man' = [man EXCEPT !.e = r.e + 1]
                             /\ UNCHANGED obj
         [] r.k = "seal" -> /\ man' = [man EXCEPT !.sealed = Append(@, r.l)]
                            /\ UNCHANGED obj
         [] r.k = "create" -> /\ obj' = [obj EXCEPT ![r.o] = [NoObject EXCEPT !.there = TRUE, !.e = r.e]]
                              /\ UNCHANGED man
         [] r.k = "fence" -> /\ obj' = [obj EXCEPT ![r.o].e = r.e]
                             /\ UNCHANGED man
         [] r.k = "append" -> /\ obj' = [obj EXCEPT ![r.o].bytes = Append(@, r.b), ![r.o].l = r.l + 1]
                              /\ UNCHANGED man

\* Can't land any more, as epochs, lengths and the row of objects only grow: it is forgotten, so that
\* there are fewer states.
Spent(r) ==
  /\ Bug = "none"
  /\ CASE r.k \in {"raise", "seal"} -> man.e > r.e \/ Len(man.sealed) >= r.o
       [] r.k = "create" -> obj[r.o].there
       [] r.k = "fence" -> obj[r.o].there /\ obj[r.o].e >= r.e
       [] r.k = "append" -> obj[r.o].e > r.e \/ obj[r.o].l > r.l
Late(requests) == late' = {r \in requests : ~Spent(r)'}

\* The request that this writer waits for. Nothing that it is made of changes while he waits.
Sends == {"raise", "seal", "create", "make", "fence", "append"}
RequestOf(w) ==
  LET s == wr[w] IN
  CASE s.pc = "raise" -> Request("raise", Open(w), s.e, 0, 0)
    [] s.pc = "fence" -> Request("fence", Open(w), s.e, 0, 0)
    [] s.pc \in {"make", "create"} -> Request("create", Open(w), s.e, 0, 0)
    [] s.pc = "seal" -> Request("seal", Open(w), s.e, s.len, 0)
    [] s.pc = "append" -> Request("append", Open(w), s.e, s.len, s.b)

-----------------------------------------------------------------------------
(* The cores: what comes next after a reply, or a look. *)

Becomes(w, state) == wr' = [wr EXCEPT ![w] = state]
At(w, pc) == Becomes(w, [wr[w] EXCEPT !.pc = pc])

\* The end of an append, and of the handle where it is fenced.
Applied(w) ==
  /\ Becomes(w, [wr[w] EXCEPT !.pc = "ready", !.len = @ + 1, !.b = 0])
  /\ LET at == Sum(wr[w].sealed) + wr[w].len + 1
     IN wrong' = (wrong \/ ~(Len(File') >= at /\ File'[at] = wr[w].b))
  /\ UNCHANGED refused
Fenced(w) ==
  /\ Becomes(w, Idle)
  /\ refused' = refused \cup {wr[w].b}
  /\ UNCHANGED wrong

IsSealed(w) == Becomes(w, [wr[w] EXCEPT !.pc = "create", !.sealed = Append(@, wr[w].len), !.len = 0])
Raised(w) == Becomes(w, [wr[w] EXCEPT !.pc = "fence", !.e = @ + 1])

\* What a look at the open object makes of it after its fence was answered.
Looked(w, e, l) ==
  Becomes(w, IF e = wr[w].e \/ (Bug = "length_before_fence" /\ wr[w].pc = "fence")
             THEN [wr[w] EXCEPT !.pc = "ready", !.len = l, !.seen = NotSeen]
             ELSE IF e < wr[w].e THEN [wr[w] EXCEPT !.pc = "look", !.seen = NotSeen]
             ELSE Idle)

Hears(w, outcome) ==
  LET pc == wr[w].pc IN
  CASE pc = "raise" ->
         \* refused: somebody else raised it, or this request did that came twice; nobody can tell
         /\ IF outcome = "done" \/ Bug = "raise_refused_is_mine" THEN Raised(w) ELSE Becomes(w, Idle)
         /\ UNCHANGED <<wrong, refused>>
    [] pc = "fence" ->
         \* planted (length_before_fence): a look that landed before the fence is believed
         /\ IF outcome = "absent" THEN Becomes(w, [wr[w] EXCEPT !.pc = "make", !.seen = NotSeen])
            ELSE Looked(w, wr[w].seen.e, wr[w].seen.l)
         /\ UNCHANGED <<wrong, refused>>
    [] pc = "make" ->
         /\ At(w, IF outcome = "done" THEN "look" ELSE "fence")
         /\ UNCHANGED <<wrong, refused>>
    [] pc = "seal" ->
         \* planted: a refused seal is taken for one that came twice, without a look
         /\ IF outcome = "done" \/ Bug = "refused_is_sealed" THEN IsSealed(w) ELSE At(w, "whyseal")
         /\ UNCHANGED <<wrong, refused>>
    [] pc = "create" ->
         /\ At(w, IF outcome = "done" THEN "append" ELSE "whycreate")
         /\ UNCHANGED <<wrong, refused>>
    [] pc = "append" ->
         IF outcome = "done" THEN Applied(w)
         \* planted: a refused append is called fenced, without a look at the bytes
         ELSE IF outcome = "absent" \/ Bug = "refused_is_fenced" THEN Fenced(w)
         ELSE At(w, "whyappend") /\ UNCHANGED <<wrong, refused>>

-----------------------------------------------------------------------------
(* Requests on their way. The reply is that of one landing; it may come once more. *)

Answered(w) ==
  /\ wr[w].pc \in Sends
  /\ Land(RequestOf(w))
  /\ Hears(w, Outcome(RequestOf(w)))
  /\ \/ Late(late) /\ UNCHANGED twice
     \/ /\ twice < MaxTwice
        /\ twice' = twice + 1
        /\ Late(late \cup {RequestOf(w)})
  /\ UNCHANGED made

\* It is carried out, and comes again: he hears of the second time.
LandUnanswered(w) ==
  /\ wr[w].pc \in Sends
  /\ twice < MaxTwice
  /\ Outcome(RequestOf(w)) = "done"
  /\ twice' = twice + 1
  /\ Land(RequestOf(w))
  /\ Late(late)
  /\ UNCHANGED <<wr, made, wrong, refused>>

LandLate ==
  \E r \in late :
    /\ Land(r)
    /\ Late(late \ {r})
    /\ UNCHANGED <<wr, twice, made, wrong, refused>>

\* No answer in time, or the process dies. What was under way lands later, or never, or has landed.
GiveUp(w) ==
  /\ wr[w].pc # "idle"
  /\ \/ UNCHANGED late
     \/ /\ wr[w].pc \in Sends
        /\ late' = late \cup {RequestOf(w)}
  /\ IF Bug = "goes_on_after_unknown" /\ wr[w].pc = "append"
     \* planted: the writer goes on after an append with unknown outcome
     THEN Becomes(w, [wr[w] EXCEPT !.pc = "ready", !.b = 0])
     ELSE Becomes(w, Idle)
  /\ UNCHANGED <<man, obj, twice, made, wrong, refused>>

-----------------------------------------------------------------------------
(* Taking the file over. *)

FenceManifest(w) ==
  /\ wr[w].pc = "idle"
  /\ man.e < MaxEpoch
  /\ IF Bug = "object_first"
     \* planted: the object's epoch is raised before the manifest's
     THEN Becomes(w, [Idle EXCEPT !.pc = "fence", !.e = man.e + 1, !.sealed = man.sealed])
     ELSE Becomes(w, [Idle EXCEPT !.pc = "raise", !.e = man.e, !.sealed = man.sealed])
  /\ UNCHANGED <<man, obj, late, twice, made, wrong, refused>>

\* The look that went with the fence lands before the fence is answered; else it is the next.
LookWithFence(w) ==
  LET o == obj[Open(w)] IN
  /\ wr[w].pc = "fence"
  /\ wr[w].seen = NotSeen
  /\ o.there
  /\ Becomes(w, [wr[w] EXCEPT !.seen = [e |-> o.e, l |-> o.l]])
  /\ UNCHANGED <<man, obj, late, twice, made, wrong, refused>>

FenceObject(w) ==
  LET o == obj[Open(w)] IN
  /\ wr[w].pc = "look"
  /\ Looked(w, o.e, o.l)
  /\ IF Bug = "object_first" /\ o.e = wr[w].e /\ man.e < wr[w].e
     THEN man' = [man EXCEPT !.e = wr[w].e] ELSE UNCHANGED man
  /\ UNCHANGED <<obj, late, twice, made, wrong, refused>>

-----------------------------------------------------------------------------
(* Appending. *)

AppendObject(w) ==
  /\ wr[w].pc = "ready"
  /\ made < MaxBytes
  /\ made' = made + 1
  /\ \E pc \in {"append"} \cup IF wr[w].len > 0 /\ Open(w) < MaxObjects THEN {"seal"} ELSE {} :
       Becomes(w, [wr[w] EXCEPT !.pc = pc, !.b = made'])
  /\ UNCHANGED <<man, obj, late, twice, wrong, refused>>

WhyAppendRefused(w) ==
  LET o == obj[Open(w)]
      at == wr[w].len + 1 IN
  /\ wr[w].pc = "whyappend"
  /\ UNCHANGED <<man, obj, late, twice, made>>
  /\ IF o.e = wr[w].e
     THEN IF o.l = at THEN Applied(w) ELSE Becomes(w, Idle) /\ UNCHANGED <<wrong, refused>>
     ELSE IF Len(o.bytes) >= at /\ o.bytes[at] = wr[w].b
     THEN Becomes(w, Idle) /\ UNCHANGED <<wrong, refused>>  \* unknown: bytes like mine, whoever's
     ELSE Fenced(w)

\* Nobody else has my epoch: the request came twice.
RollSeal(w) ==
  /\ wr[w].pc = "whyseal"
  /\ IF man.e = wr[w].e THEN IsSealed(w) /\ UNCHANGED <<wrong, refused>> ELSE Fenced(w)
  /\ UNCHANGED <<man, obj, late, twice, made>>

RollCreate(w) ==
  /\ wr[w].pc = "whycreate"
  /\ IF obj[Open(w)].e = wr[w].e THEN At(w, "append") /\ UNCHANGED <<wrong, refused>> ELSE Fenced(w)
  /\ UNCHANGED <<man, obj, late, twice, made>>

-----------------------------------------------------------------------------
Init ==
  /\ man = [e |-> 1, sealed |-> <<>>]
  /\ obj = [o \in Objects |-> IF o = 1 THEN [NoObject EXCEPT !.there = TRUE, !.e = 1] ELSE NoObject]
  /\ \E owner \in Writers :
       wr = [w \in Writers |-> IF w = owner THEN [Idle EXCEPT !.pc = "ready", !.e = 1] ELSE Idle]
  /\ late = {}
  /\ twice = 0
  /\ made = 0
  /\ wrong = FALSE
  /\ refused = {}

Next ==
  \/ \E w \in Writers : \/ Answered(w) \/ LandUnanswered(w) \/ GiveUp(w)
                        \/ FenceManifest(w) \/ LookWithFence(w) \/ FenceObject(w)
                        \/ AppendObject(w) \/ WhyAppendRefused(w) \/ RollSeal(w) \/ RollCreate(w)
  \/ LandLate

Spec == Init /\ [][Next]_vars

Prefix(a, b) == Len(a) <= Len(b) /\ \A i \in 1 .. Len(a) : a[i] = b[i]

\* What is acknowledged is the file's byte at the position that the acknowledgement names.
Acked == ~wrong

\* And a reader may see it at once, so it stays.
Kept == [][Prefix(File, File')]_vars

\* What a producer was told is not there is not there, and never comes.
RefusedAbsent == \A i \in 1 .. Len(File) : File[i] \notin refused

\* An append is there once, however often its request came.
Once == \A i, j \in 1 .. Len(File) : i # j => File[i] # File[j]

\* The manifest's length of a sealed object is the object's, whatever lands on it later.
SealsAreTrue == \A o \in 1 .. Len(man.sealed) : obj[o].there /\ man.sealed[o] = Len(obj[o].bytes)

\* A reader with any earlier manifest sees a prefix of the file.
OldManifestHarmless == \A n \in 0 .. Len(man.sealed) : Prefix(FileBy(SubSeq(man.sealed, 1, n)), File)
ManifestGrows == [][Prefix(man.sealed, man'.sealed) /\ man.e <= man'.e]_vars

\* Whoever holds the open object knows its length: AppendAt needs no other check of the offset.
OwnerKnowsLength ==
  \A w \in Writers : wr[w].pc = "ready" /\ obj[Open(w)].e = wr[w].e => wr[w].len = Len(obj[Open(w)].bytes)

\* Of all epochs one is one writer's.
OneOwner ==
  \A v, w \in Writers : v # w /\ wr[v].pc \notin {"idle", "raise"} /\ wr[w].pc \notin {"idle", "raise"}
                        => wr[v].e # wr[w].e

Symmetric == Permutations(Writers)
=============================================================================
