------------------------------ MODULE Fencing ------------------------------
(* One primary file of the posix driver: a commit word, and one segment (inode) per epoch.           *)
(*                                                                                                   *)
(* Design rule 1, "Committed first", asks two things of the primary layer. What was shown or         *)
(* acknowledged survives every crash, takeover and power loss; and a writer that was stopped between *)
(* any two of its steps and woken after a takeover harms nothing. The file does it like this:        *)
(*                                                                                                   *)
(*   append  = pwrite the bytes and a slot, one fdatasync of that inode, then compare-and-swap the   *)
(*             word from (e, old length) to (e, new length). Only that swap commits.                 *)
(*   fence   = swap (e, len) to (e+1, len), then create segment e+1, durably, starting at len.       *)
(*   reading = position p comes from the segment of the highest epoch whose start is <= p.           *)
(*   reboot  = the word is in memory only for what matters: it is not trusted when the boot id in    *)
(*             the header is old. The length is then that of the newest slot of the segment of the   *)
(*             highest epoch whose byte range still matches its checksum.                            *)
(*             A device that is attached anew ends the page cache as well: the driver's id is then   *)
(*             another one, too (src/storage/attachment.h).                                          *)
(*   attach  = when all processes have ended the page cache may live on, and shows the next ones     *)
(*             what was written and never flushed. The id is another one, too; and before anybody    *)
(*             believes what is there, all of it is written out.                                     *)
(*                                                                                                   *)
(* Abstractions. A byte written in epoch e has the value e: a segment has one writer, and that one   *)
(* writes each position once, so "position p of segment e" says it all, a segment's content is the   *)
(* set of positions that were written, and the slot's checksum matches when its whole range is in    *)
(* that set. Value 0 is garbage. mem is what processes see, disk what a power loss leaves at least;  *)
(* what is in mem only may survive or not, byte by byte. Memory is sequentially consistent. A read   *)
(* of committed bytes is one step, as they never change. A crash of a process is that it never steps *)
(* again; a power loss ends them all. There is no fairness: every property here is a safety one.     *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Writers,     \* processes that may open the file for writing, again and again
  MaxEpoch,    \* takeovers are bounded by this
  MaxLen,      \* positions are 0 .. MaxLen - 1
  MaxLosses,   \* power losses, and attachments that end
  Reading,     \* TRUE: there is a reader
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  word,        \* the commit word: [e, len]
  booted,      \* does the header carry the id of this boot?
  seg,         \* epoch -> segment
  wr,          \* writer -> its state
  rd,          \* the reader
  told,        \* every byte that was ever acknowledged or shown to anyone, in order
  misread,     \* has a reader ever been given another byte than an earlier one?
  refused,     \* set of <<position, value>> that a producer was told were not written
  losses

vars == <<word, booted, seg, wr, rd, told, misread, refused, losses>>

Epochs == 1 .. MaxEpoch
Pos == 0 .. MaxLen - 1
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
NoSlot == [from |-> 0, len |-> 0]
NoSeg == [at |-> "none", start |-> 0, mem |-> {}, disk |-> {},
          mslot |-> <<NoSlot, NoSlot>>, dslot |-> <<NoSlot, NoSlot>>]
IdleWriter == [pc |-> "idle", e |-> 0, len |-> 0, n |-> 0, w |-> [e |-> 0, len |-> 0]]
IdleReader == [pc |-> "idle", e |-> 0, len |-> 0, list |-> {}]

-----------------------------------------------------------------------------
(* What the file says. *)

Visible == {e \in Epochs : seg[e].at # "none"}

SegmentOf(p, list) == Max({e \in list : seg[e].start <= p})
ValueAt(p, list) == LET e == SegmentOf(p, list) IN IF p \in seg[e].mem THEN e ELSE 0

SlotGood(e, i) ==
  LET s == seg[e].mslot[i] IN
  /\ s # NoSlot
  /\ Bug = "no_range_checksum" \/ (s.from .. s.len - 1) \subseteq seg[e].mem

SlotLength(e) == Max({seg[e].start} \cup {seg[e].mslot[i].len : i \in {j \in {1, 2} : SlotGood(e, j)}})

\* The length after a reboot. Only the segment of the highest epoch counts: in an older one a writer
\* that had lost its epoch may have flushed a slot of its own.
Recovered ==
  IF Bug = "trust_word" THEN word.len
  ELSE IF Bug = "slots_of_any_segment" THEN Max({SlotLength(e) : e \in Visible})
  ELSE SlotLength(Max(Visible))

Committed == IF booted THEN word.len ELSE Recovered
View == [i \in 1 .. Committed |-> ValueAt(i - 1, Visible)]

-----------------------------------------------------------------------------
(* A writer opens the file: it fences every earlier one. *)

\* The takeover: from here every swap of an earlier epoch fails. (A swap that fails is tried again, so
\* reading the word and swapping it are one step here.)
Fence(w) ==
  /\ wr[w].pc = "idle"
  /\ booted
  /\ word.e < MaxEpoch
  /\ word' = [word EXCEPT !.e = @ + 1]
  /\ wr' = [wr EXCEPT ![w].pc = "create", ![w].e = word'.e, ![w].len = word.len]
  /\ UNCHANGED <<booted, seg, rd, told, misread, refused, losses>>

\* After a reboot the takeover recovers the file. The word is read first, the boot id after it.
RecoverReadWord(w) ==
  /\ wr[w].pc = "idle"
  /\ ~booted
  /\ wr' = [wr EXCEPT ![w].pc = "slots", ![w].w = word]
  /\ UNCHANGED <<word, booted, seg, rd, told, misread, refused, losses>>

\* Length and epoch from what is on disk.
RecoverReadSlots(w) ==
  /\ wr[w].pc = "slots"
  /\ Max(Visible \cup {wr[w].w.e}) < MaxEpoch
  /\ wr' = [wr EXCEPT ![w].pc = "bracket",
                      ![w].e = Max(Visible \cup {wr[w].w.e}) + 1,
                      ![w].len = Recovered]
  /\ UNCHANGED <<word, booted, seg, rd, told, misread, refused, losses>>

\* The boot id is looked at again: had somebody recovered and begun to append meanwhile, then the
\* slots that we saw may be of bytes that are not flushed.
RecoverBracket(w) ==
  /\ wr[w].pc = "bracket"
  /\ wr' = [wr EXCEPT ![w] = IF booted /\ Bug # "no_bracket" THEN IdleWriter
                             ELSE [@ EXCEPT !.pc = "swap"]]
  /\ UNCHANGED <<word, booted, seg, rd, told, misread, refused, losses>>

\* The swap, of the word that was read before the slots: nobody else recovered the file meanwhile.
RecoverFence(w) ==
  /\ wr[w].pc = "swap"
  \* planted: a swap that fails is tried again with the word as it is now and the same length
  /\ IF word = wr[w].w \/ (Bug = "swap_retried" /\ word.e < wr[w].e)
     THEN /\ word' = [e |-> wr[w].e, len |-> wr[w].len]
          /\ wr' = [wr EXCEPT ![w].pc = "boot", ![w].w = word']
     ELSE /\ wr' = [wr EXCEPT ![w] = IdleWriter]
          /\ UNCHANGED word
  /\ UNCHANGED <<booted, seg, rd, told, misread, refused, losses>>

\* The header gets this boot's id: from here the word is trusted. A second recovery that read the
\* old id cannot harm: its swap expects the word that we replaced.
RecoverSetBoot(w) ==
  /\ wr[w].pc = "boot"
  /\ booted' = TRUE
  /\ wr' = [wr EXCEPT ![w].pc = "create"]
  /\ UNCHANGED <<word, seg, rd, told, misread, refused, losses>>

\* The segment is made as a nameless inode with its header, flushed, and linked under its name.
CreateSegment(w) ==
  LET e == IF Bug = "same_inode" THEN SegmentOf(wr[w].len, Visible) ELSE wr[w].e IN
  /\ wr[w].pc = "create"
  \* planted: the takeover goes on in the inode that the earlier writer still has open
  /\ seg' = IF Bug = "same_inode" THEN seg
            ELSE [seg EXCEPT ![e] = [NoSeg EXCEPT !.at = "linked", !.start = wr[w].len]]
  \* planted: appends begin before the directory is flushed
  /\ wr' = [wr EXCEPT ![w].pc = IF Bug \in {"same_inode", "segment_not_durable"} THEN "ready" ELSE "sync"]
  /\ UNCHANGED <<word, booted, rd, told, misread, refused, losses>>

\* The directory is flushed. Only now is the fence complete and its length told to anyone.
CreateSegmentSync(w) ==
  /\ wr[w].pc = "sync"
  /\ seg' = [seg EXCEPT ![wr[w].e].at = "durable"]
  /\ wr' = [wr EXCEPT ![w].pc = "ready"]
  /\ UNCHANGED <<word, booted, rd, told, misread, refused, losses>>

-----------------------------------------------------------------------------
(* An append. Any time may pass before each step. *)

Inode(w) == IF Bug = "same_inode" THEN 1 ELSE wr[w].e

\* An append that finds another epoch in the word before it writes anything is refused, and the handle
\* is dead. (That somebody looked is no protection: AppendWrite does not ask for it.)
AppendRefused(w) ==
  /\ wr[w].pc = "ready"
  /\ word # [e |-> wr[w].e, len |-> wr[w].len]
  /\ wr' = [wr EXCEPT ![w] = IdleWriter]
  /\ UNCHANGED <<word, booted, seg, rd, told, misread, refused, losses>>

\* The bytes and the slot that is not the one of the committed length.
AppendWrite(w, n) ==
  LET e == Inode(w)
      i == IF Bug # "one_slot" /\ seg[e].mslot[1].len = wr[w].len THEN 2 ELSE 1 IN
  /\ wr[w].pc = "ready"
  /\ wr[w].len + n <= MaxLen
  /\ seg' = [seg EXCEPT ![e].mem = @ \cup (wr[w].len .. wr[w].len + n - 1),
                        ![e].mslot[i] = [from |-> wr[w].len, len |-> wr[w].len + n]]
  /\ wr' = [wr EXCEPT ![w].n = n, ![w].pc = IF Bug = "ack_before_flush" THEN "commit" ELSE "flush"]
  /\ UNCHANGED <<word, booted, rd, told, misread, refused, losses>>

\* One fdatasync: the inode's bytes and slots, and, as the word lives in the first inode, the word.
AppendSync(w) ==
  LET e == Inode(w) IN
  /\ wr[w].pc = "flush"
  /\ seg' = [seg EXCEPT ![e].disk = seg[e].mem, ![e].dslot = seg[e].mslot]
  /\ wr' = [wr EXCEPT ![w].pc = IF Bug = "check_then_append" THEN "check" ELSE "commit"]
  /\ UNCHANGED <<word, booted, rd, told, misread, refused, losses>>

\* fdatasync fails: nobody knows what reached the disk, and a second try would say nothing. The
\* handle is dead, the outcome of the append unknown.
AppendSyncFail(w) ==
  /\ wr[w].pc \in {"flush", "revoked"}
  /\ wr' = [wr EXCEPT ![w] = IdleWriter]
  /\ UNCHANGED <<word, booted, seg, rd, told, misread, refused, losses>>

\* planted: "do we still own the file?" and the commit are two steps
AppendCheck(w) ==
  /\ wr[w].pc = "check"
  /\ wr' = [wr EXCEPT ![w] = IF word.e = wr[w].e THEN [@ EXCEPT !.pc = "commit"] ELSE IdleWriter]
  /\ UNCHANGED <<word, booted, seg, rd, told, misread, refused, losses>>

Range(w) == {<<p, IF Bug = "same_inode" THEN 1 ELSE wr[w].e>> : p \in wr[w].len .. wr[w].len + wr[w].n - 1}

\* The swap. When it fails the writer is fenced, and its handle dead. That alone does not say that the
\* bytes will never be seen: a power loss before the new segment is durable would bring them back by
\* way of the slot. So the slot is taken back first.
AppendCommit(w) ==
  /\ wr[w].pc = "commit"
  /\ LET new == [e |-> wr[w].e, len |-> wr[w].len + wr[w].n] IN
     IF word = [e |-> wr[w].e, len |-> wr[w].len] \/ Bug = "check_then_append"
     THEN /\ word' = new
          \* what a recovery brought back below our bytes is shown from now on, too
          /\ told' = IF new.len <= Len(told) THEN told
                     ELSE told \o [i \in 1 .. new.len - Len(told) |->
                                    IF Len(told) + i <= wr[w].len THEN ValueAt(Len(told) + i - 1, Visible)
                                    ELSE wr[w].e]
          /\ wr' = [wr EXCEPT ![w].pc = IF Bug = "ack_before_flush" THEN "flush" ELSE "ready",
                              ![w].len = new.len, ![w].n = 0]
          /\ UNCHANGED refused
     \* planted: "fenced" is told as "not written" at once
     ELSE /\ wr' = [wr EXCEPT ![w] = IF Bug = "fenced_is_refused" THEN IdleWriter ELSE [@ EXCEPT !.pc = "revoke"]]
          /\ refused' = IF Bug = "fenced_is_refused" THEN refused \cup Range(w) ELSE refused
          /\ UNCHANGED <<word, told>>
  /\ UNCHANGED <<booted, seg, rd, misread, losses>>

AppendRevoke(w) ==
  LET e == Inode(w) IN
  /\ wr[w].pc = "revoke"
  /\ seg' = [seg EXCEPT ![e].mslot = [i \in {1, 2} |-> IF @[i].len = wr[w].len + wr[w].n THEN NoSlot ELSE @[i]]]
  \* planted: "refused" is told before that is flushed
  /\ IF Bug = "revoke_not_flushed"
     THEN wr' = [wr EXCEPT ![w] = IdleWriter] /\ refused' = refused \cup Range(w)
     ELSE wr' = [wr EXCEPT ![w].pc = "revoked"] /\ UNCHANGED refused
  /\ UNCHANGED <<word, booted, rd, told, misread, losses>>

\* Only now the append is refused for certain. (If this flush fails, the outcome is unknown.)
AppendRevokeSync(w) ==
  LET e == Inode(w) IN
  /\ wr[w].pc = "revoked"
  /\ seg' = [seg EXCEPT ![e].disk = seg[e].mem, ![e].dslot = seg[e].mslot]
  /\ wr' = [wr EXCEPT ![w] = IdleWriter]
  /\ refused' = refused \cup Range(w)
  /\ UNCHANGED <<word, booted, rd, told, misread, losses>>

-----------------------------------------------------------------------------
(* A reader: size, then the bytes. *)

ReadWord ==
  /\ Reading
  /\ rd.pc = "idle"
  /\ rd' = IF booted THEN [rd EXCEPT !.pc = "list", !.e = word.e, !.len = word.len]
                     ELSE [rd EXCEPT !.pc = "slots"]
  /\ UNCHANGED <<word, booted, seg, wr, told, misread, refused, losses>>

\* The header is of an earlier boot: nobody appends before somebody has recovered the file, so the
\* slots say the length, provided that the boot id is still the old one after they were read.
ReadSlots ==
  /\ rd.pc = "slots"
  /\ rd' = [rd EXCEPT !.pc = "bracket", !.len = Recovered, !.e = Max(Visible), !.list = Visible]
  /\ UNCHANGED <<word, booted, seg, wr, told, misread, refused, losses>>

ReadBracket ==
  /\ rd.pc = "bracket"
  /\ rd' = IF booted /\ Bug # "reader_no_bracket" THEN IdleReader ELSE [rd EXCEPT !.pc = "show"]
  /\ UNCHANGED <<word, booted, seg, wr, told, misread, refused, losses>>

\* The bytes from the segments. Their listing is kept while it holds the segment of the word's epoch.
ReadShow ==
  LET list == IF rd.pc = "show" \/ rd.e \in rd.list \/ (Bug = "listing_kept" /\ rd.list # {})
              THEN rd.list ELSE Visible IN
  /\ rd.pc \in {"list", "show"}
  /\ LET seen == [i \in 1 .. rd.len |-> ValueAt(i - 1, list)] IN
     /\ misread' = (misread \/ \E i \in 1 .. rd.len : i <= Len(told) /\ seen[i] # told[i])
     /\ told' = IF rd.len > Len(told) THEN told \o SubSeq(seen, Len(told) + 1, rd.len) ELSE told
  /\ rd' = [pc |-> "idle", e |-> 0, len |-> 0, list |-> list]
  /\ UNCHANGED <<word, booted, seg, wr, refused, losses>>

-----------------------------------------------------------------------------
\* Every process ends. A segment that is only linked stays or goes; of every inode, what was flushed
\* stays, and of what was not, any part.
PowerLoss ==
  /\ losses < MaxLosses
  /\ losses' = losses + 1
  /\ \E keep \in SUBSET {e \in Epochs : seg[e].at = "linked"} :
     \E bytes \in SUBSET {<<e, p>> \in Epochs \X Pos : p \in seg[e].mem \ seg[e].disk} :
     \E slots \in SUBSET {<<e, i>> \in Epochs \X {1, 2} : seg[e].mslot[i] # seg[e].dslot[i]} :
       seg' = [e \in Epochs |->
         IF seg[e].at = "none" \/ (seg[e].at = "linked" /\ e \notin keep) THEN NoSeg
         ELSE LET data == seg[e].disk \cup {p \in Pos : <<e, p>> \in bytes}
                  slot == [i \in {1, 2} |-> IF <<e, i>> \in slots THEN seg[e].mslot[i] ELSE seg[e].dslot[i]]
              IN [at |-> "durable", start |-> seg[e].start,
                  mem |-> data, disk |-> data, mslot |-> slot, dslot |-> slot]]
  \* Pages are written back at any time, so the word may be as it was, or long ago.
  /\ word' \in {word, [e |-> 1, len |-> 0]}
  /\ booted' = (Bug = "trust_word")
  /\ wr' = [w \in Writers |-> IdleWriter]
  /\ rd' = IdleReader
  /\ UNCHANGED <<told, misread, refused>>

\* Every process is killed, and another attachment begins in the same page cache: its first process
\* has the file system write out what it has.
Attach ==
  /\ losses < MaxLosses
  /\ losses' = losses + 1
  \* planted: nobody does
  /\ seg' = IF Bug = "attached_unflushed" THEN seg
            ELSE [e \in Epochs |->
                    IF seg[e].at = "none" THEN NoSeg
                    ELSE [seg[e] EXCEPT !.at = "durable", !.disk = seg[e].mem, !.dslot = seg[e].mslot]]
  /\ booted' = FALSE
  /\ wr' = [w \in Writers |-> IdleWriter]
  /\ rd' = IdleReader
  /\ UNCHANGED <<word, told, misread, refused>>

-----------------------------------------------------------------------------
Init ==
  /\ word = [e |-> 1, len |-> 0]
  /\ booted = TRUE
  /\ seg = [e \in Epochs |-> IF e = 1 THEN [NoSeg EXCEPT !.at = "durable"] ELSE NoSeg]
  /\ \E owner \in Writers :
       wr = [w \in Writers |-> IF w = owner THEN [IdleWriter EXCEPT !.pc = "ready", !.e = 1] ELSE IdleWriter]
  /\ rd = IdleReader
  /\ told = <<>>
  /\ misread = FALSE
  /\ refused = {}
  /\ losses = 0

Next ==
  \/ \E w \in Writers :
       \/ Fence(w)
       \/ RecoverReadWord(w) \/ RecoverReadSlots(w) \/ RecoverBracket(w) \/ RecoverFence(w) \/ RecoverSetBoot(w)
       \/ CreateSegment(w) \/ CreateSegmentSync(w)
       \/ \E n \in 1 .. 2 : AppendWrite(w, n)     \* larger ones are the same as two
       \/ AppendRefused(w) \/ AppendSync(w) \/ AppendSyncFail(w) \/ AppendCheck(w)
       \/ AppendCommit(w) \/ AppendRevoke(w) \/ AppendRevokeSync(w)
  \/ ReadWord \/ ReadSlots \/ ReadBracket \/ ReadShow
  \/ PowerLoss \/ Attach

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Rule 1, "Committed first". *)

\* What was acknowledged or shown is what the file says from then on, after every takeover and every
\* power loss; no byte of it is a hole, or what a power loss left of an unflushed write.
Kept == /\ Len(told) <= Committed
        /\ \A i \in 1 .. Len(told) : told[i] = View[i] /\ told[i] # 0

\* Nothing is committed that a power loss could take: neither its bytes nor the segment's name.
CommittedIsDurable ==
  booted => \A i \in 1 .. word.len : LET e == SegmentOf(i - 1, Visible) IN
                                      i - 1 \in seg[e].disk /\ seg[e].at = "durable"

\* What the word on disk says was acknowledged, and what was is recovered: a word that says more tells
\* that the disk has lost what it had flushed.
WordIsCovered == ~booted => word.len <= Recovered

\* A reader never sees anything else than what was acknowledged or shown before.
ReadsAgree == ~misread

\* What a producer was told is not written is never in the file.
RefusedAbsent == \A b \in refused : ~(b[1] < Committed /\ View[b[1] + 1] = b[2])

\* Whoever holds the epoch knows the length, so that an append at his length is an append at the end.
OwnerKnowsLength ==
  \A w \in Writers : wr[w].pc \in {"create", "sync", "ready"} /\ booted /\ wr[w].e = word.e
                     => wr[w].len = word.len

Symmetric == Permutations(Writers)
=============================================================================
