--------------------------- MODULE FencingRolled ---------------------------
(* One primary file of the ceph driver: a row of append objects, and a manifest that says how long   *)
(* each object is that is no longer appended to. The counterpart of Fencing for an object store that *)
(* compares and changes one object atomically, but only one at a time.                               *)
(*                                                                                                   *)
(*   append = one operation on the open object: its epoch is mine, and append.                       *)
(*   roll   = with no append open: write the object's length into the manifest (if its epoch is      *)
(*            mine), then create the next object, exclusively, with my epoch.                        *)
(*   fence  = raise the epoch of the manifest first: from here nobody else rolls. Then the epoch of  *)
(*            the object that the manifest calls open (only upwards), or create it, when the earlier *)
(*            owner did not come to it. Its length now is the file's.                                *)
(*   read   = of an object that the manifest calls open, what is there; of another, up to its length *)
(*            in the manifest.                                                                       *)
(*                                                                                                   *)
(* Design rule 1, "Committed first". Abstractions: a byte is its own identity. An acknowledged       *)
(* operation is durable (that is what the store promises), so there is no power loss here. An append *)
(* whose answer is lost was applied, or arrives later, or never; its handle is dead. A crash of a    *)
(* writer is that it never steps again. Safety only.                                                 *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Writers, MaxEpoch, MaxBytes, MaxObjects,
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  man,         \* the manifest: [e, sealed], sealed the lengths of the objects before the open one
  obj,         \* number -> [there, e, bytes]
  wr,          \* writer -> its state
  late,        \* set of appends under way: [o, e, b]
  made,        \* bytes ever made
  rd,          \* the manifest as the reader last read it
  told         \* the bytes that were acknowledged or shown, in order

vars == <<man, obj, wr, late, made, rd, told>>

Objects == 1 .. MaxObjects
Idle == [pc |-> "idle", e |-> 0, o |-> 0, len |-> 0]
NoObject == [there |-> FALSE, e |-> 0, bytes |-> <<>>]

RECURSIVE Sum(_)
Sum(s) == IF s = <<>> THEN 0 ELSE s[1] + Sum(Tail(s))

\* The file as a reader with the manifest m sees it: objects up to their lengths, then the open one.
RECURSIVE Sealed(_, _)
Sealed(m, o) ==
  IF o > Len(m) THEN <<>>
  ELSE SubSeq(obj[o].bytes, 1, IF m[o] < Len(obj[o].bytes) THEN m[o] ELSE Len(obj[o].bytes)) \o Sealed(m, o + 1)
FileBy(m) == Sealed(m, 1) \o IF Len(m) < MaxObjects THEN obj[Len(m) + 1].bytes ELSE <<>>
File == FileBy(man.sealed)

Tell(seen) == told' = IF Len(seen) > Len(told) THEN seen ELSE told

-----------------------------------------------------------------------------
(* Taking the file over. *)

FenceManifest(w) ==
  /\ wr[w].pc = IF Bug = "object_first" THEN "manifest" ELSE "idle"
  /\ man.e < MaxEpoch
  /\ man' = [man EXCEPT !.e = @ + 1]
  /\ wr' = [wr EXCEPT ![w] = IF Bug = "object_first" THEN [@ EXCEPT !.pc = "ready", !.e = man'.e]
                             ELSE [Idle EXCEPT !.pc = "object", !.e = man'.e, !.o = Len(man.sealed) + 1,
                                   \* planted: the length is asked for before the object's fence
                                   !.len = Len(obj[Len(man.sealed) + 1].bytes)]]
  /\ UNCHANGED <<obj, late, made, rd, told>>

\* planted: the object's epoch is raised before the manifest's
FenceObjectFirst(w) ==
  LET o == Len(man.sealed) + 1 IN
  /\ Bug = "object_first"
  /\ wr[w].pc = "idle"
  /\ man.e < MaxEpoch
  /\ obj[o].there
  /\ obj' = [obj EXCEPT ![o].e = man.e + 1]
  /\ wr' = [wr EXCEPT ![w] = [Idle EXCEPT !.pc = "manifest", !.o = o, !.len = Len(obj[o].bytes)]]
  /\ UNCHANGED <<man, late, made, rd, told>>

\* Creating is exclusive and carries the epoch; raising is guarded by the epoch that is there. So a
\* fencer that slept finds a higher one, and is fenced itself.
FenceObject(w) ==
  LET o == wr[w].o IN
  /\ wr[w].pc = "object"
  /\ IF ~obj[o].there
     THEN /\ obj' = [obj EXCEPT ![o] = [NoObject EXCEPT !.there = TRUE, !.e = wr[w].e]]
          /\ wr' = [wr EXCEPT ![w].pc = "ready", ![w].len = 0]
     ELSE IF obj[o].e < wr[w].e \/ Bug = "epoch_not_guarded"
     THEN /\ obj' = [obj EXCEPT ![o].e = wr[w].e]
          /\ wr' = [wr EXCEPT ![w].pc = "ready",
                              ![w].len = IF Bug = "length_before_fence" THEN @ ELSE Len(obj[o].bytes)]
     ELSE /\ wr' = [wr EXCEPT ![w] = Idle]
          /\ UNCHANGED obj
  /\ UNCHANGED <<man, late, made, rd, told>>

-----------------------------------------------------------------------------
(* Appending. *)

AppendObject(w) ==
  LET o == wr[w].o
      b == made + 1 IN
  /\ wr[w].pc = "ready"
  /\ made < MaxBytes
  /\ made' = b
  /\ \* applied and acknowledged
     \/ /\ obj[o].e = wr[w].e \/ Bug = "append_not_guarded"
        /\ obj' = [obj EXCEPT ![o].bytes = Append(@, b)]
        /\ wr' = [wr EXCEPT ![w].len = @ + 1]
        \* what the acknowledgement says: the byte is the file's byte at this position
        /\ LET before == Sum(SubSeq(man.sealed, 1, IF o - 1 < Len(man.sealed) THEN o - 1 ELSE Len(man.sealed)))
                         + wr[w].len
           IN told' = IF Len(told) <= before
                      THEN SubSeq(File, 1, before) \o <<b>> ELSE SubSeq(told, 1, before) \o <<b>>
        /\ UNCHANGED late
     \* refused
     \/ /\ obj[o].e # wr[w].e /\ Bug # "append_not_guarded"
        /\ wr' = [wr EXCEPT ![w] = Idle]
        /\ UNCHANGED <<obj, late, told>>
     \* unknown: under way. The handle is dead.
     \/ /\ late' = late \cup {[o |-> o, e |-> wr[w].e, b |-> b]}
        \* planted: the writer goes on after an unknown outcome
        /\ wr' = [wr EXCEPT ![w] = IF Bug = "goes_on_after_unknown" THEN @ ELSE Idle]
        /\ UNCHANGED <<obj, told>>
  /\ UNCHANGED <<man, rd>>

LateAppend ==
  \E a \in late :
    /\ late' = late \ {a}
    /\ obj' = IF obj[a.o].e = a.e THEN [obj EXCEPT ![a.o].bytes = Append(@, a.b)] ELSE obj
    /\ UNCHANGED <<man, wr, made, rd, told>>

\* The object's length becomes part of the manifest.
RollSeal(w) ==
  LET o == wr[w].o IN
  /\ wr[w].pc = "ready"
  /\ wr[w].len > 0
  /\ o < MaxObjects
  /\ IF man.e = wr[w].e \/ (Bug = "manifest_not_guarded" /\ Len(man.sealed) <= o)
     THEN /\ man' = [man EXCEPT !.sealed = IF Len(@) < o THEN Append(@, wr[w].len) ELSE [@ EXCEPT ![o] = wr[w].len]]
          /\ wr' = [wr EXCEPT ![w].pc = "create", ![w].o = o + 1, ![w].len = 0]
     ELSE /\ wr' = [wr EXCEPT ![w] = Idle]
          /\ UNCHANGED man
  /\ UNCHANGED <<obj, late, made, rd, told>>

RollCreate(w) ==
  LET o == wr[w].o IN
  /\ wr[w].pc = "create"
  /\ IF ~obj[o].there \/ Bug = "create_not_exclusive"
     THEN /\ obj' = [obj EXCEPT ![o] = [NoObject EXCEPT !.there = TRUE, !.e = wr[w].e]]
          /\ wr' = [wr EXCEPT ![w].pc = "ready"]
     ELSE /\ wr' = [wr EXCEPT ![w] = Idle]
          /\ UNCHANGED obj
  /\ UNCHANGED <<man, late, made, rd, told>>

-----------------------------------------------------------------------------
(* A reader, whose manifest may be old. *)

ReadManifest ==
  /\ rd # man.sealed
  /\ rd' = man.sealed
  /\ UNCHANGED <<man, obj, wr, late, made, told>>

ReadBytes ==
  /\ Len(FileBy(rd)) > Len(told)
  /\ Tell(FileBy(rd))
  /\ UNCHANGED <<man, obj, wr, late, made, rd>>

Init ==
  /\ man = [e |-> 1, sealed |-> <<>>]
  /\ obj = [o \in Objects |-> IF o = 1 THEN [NoObject EXCEPT !.there = TRUE, !.e = 1] ELSE NoObject]
  /\ \E owner \in Writers :
       wr = [w \in Writers |-> IF w = owner THEN [Idle EXCEPT !.pc = "ready", !.e = 1, !.o = 1] ELSE Idle]
  /\ late = {}
  /\ made = 0
  /\ rd = <<>>
  /\ told = <<>>

Next ==
  \/ \E w \in Writers : \/ FenceManifest(w) \/ FenceObjectFirst(w) \/ FenceObject(w)
                        \/ AppendObject(w) \/ RollSeal(w) \/ RollCreate(w)
  \/ LateAppend \/ ReadManifest \/ ReadBytes

Spec == Init /\ [][Next]_vars

\* What was acknowledged (at the position that the acknowledgement named) or shown is what the file
\* says from then on.
Kept == Len(told) <= Len(File) /\ \A i \in 1 .. Len(told) : told[i] = File[i]

\* A reader with an old manifest sees a prefix of the file.
OldManifestHarmless == LET f == FileBy(rd) IN Len(f) <= Len(File) /\ \A i \in 1 .. Len(f) : f[i] = File[i]

\* Whoever holds the open object knows its length: AppendAt needs no other check of the offset.
OwnerKnowsLength ==
  \A w \in Writers : wr[w].pc = "ready" /\ obj[wr[w].o].e = wr[w].e => wr[w].len = Len(obj[wr[w].o].bytes)

Symmetric == Permutations(Writers)
=============================================================================
