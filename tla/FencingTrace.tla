---------------------------- MODULE FencingTrace ----------------------------
(* Is a log of the posix driver a behaviour of Fencing? One file, all its writers' handles (each has         *)
(* a name of its own, used once) and one reader; the events in one total order, each written at the          *)
(* step that it names. Lengths and positions are in bytes, epochs as they are in the file.                   *)
(* TraceSupport says how a trace is judged.                                                                  *)
(*                                                                                                           *)
(*   Create          writer                     always the first event; the file has epoch 1                 *)
(*   Fence           writer epoch length        the word after the swap, in the same boot                    *)
(*   RecoverReadWord writer epoch length        the word as it was read                                      *)
(*   RecoverReadSlots writer epoch length       the epoch to be taken, the length that the slots say         *)
(*   RecoverBracket  writer booted              the second look at the boot id                               *)
(*   RecoverFence    writer swapped             did the swap succeed?                                        *)
(*   RecoverSetBoot  writer                                                                                  *)
(*   CreateSegment   writer                     linked under its name                                        *)
(*   CreateSegmentSync writer                   the directory is flushed: the opening is complete            *)
(*   AppendRefused   writer                     another epoch was seen before anything was written           *)
(*   AppendWrite     writer at bytes            bytes and slot were written                                  *)
(*   AppendSync      writer                     the flush of these succeeded                                 *)
(*   AppendSyncFail  writer                     it failed, or that of a revocation did                       *)
(*   AppendCommit    writer swapped             did the swap succeed?                                        *)
(*   AppendRevoke    writer                     the slot was overwritten                                     *)
(*   AppendRevokeSync writer                    and that flushed: the append is refused                      *)
(*   ReadWord        booted [epoch length]      the reader looked at boot id and, if it is this boot's, word *)
(*   ReadSlots       length                     what the slots say                                           *)
(*   ReadBracket     booted                     the second look at the boot id                               *)
(*   ReadShow        at bytes epoch             so many bytes at this position came from this segment        *)
(*   PowerLoss                                                                                               *)
(*                                                                                                           *)
(* Positions are replaced by their rank among all that the log names: between two of these nothing           *)
(* happens, so a log of megabytes is as small as its number of events.                                       *)
EXTENDS Fencing, TraceSupport

Field(f) == {i \in 1 .. Len(TraceEvents) : f \in DOMAIN TraceEvents[i]}
Places == {0} \cup {TraceEvents[i].length : i \in Field("length")}
              \cup {TraceEvents[i].at : i \in Field("at")}
              \cup {TraceEvents[i].at + TraceEvents[i].bytes : i \in Field("at")}
RankOf == [x \in Places |-> Cardinality({y \in Places : y < x})]

TraceWriters == StringsOf("writer")
TraceMaxEpoch == MaxOf("epoch", 1) + 1
TraceMaxLen == Len(TraceEvents) + 1
TraceMaxLosses == CountOf("PowerLoss")

w == Event.writer
Word == [e |-> Event.epoch, len |-> RankOf[Event.length]]

TraceStart ==
  /\ Init
  /\ TraceEvents[1].event = "Create"
  /\ wr[TraceEvents[1].writer].pc = "ready"
  /\ line = 2

TraceNext ==
  \/ Is("Fence") /\ Fence(w) /\ word' = Word
  \/ Is("RecoverReadWord") /\ RecoverReadWord(w) /\ word = Word
  \/ Is("RecoverReadSlots") /\ RecoverReadSlots(w)
     /\ wr'[w].e = Event.epoch /\ wr'[w].len = RankOf[Event.length]
  \/ Is("RecoverBracket") /\ RecoverBracket(w) /\ Event.booted = booted
  \/ Is("RecoverFence") /\ RecoverFence(w) /\ Event.swapped = (wr'[w].pc = "boot")
  \/ Is("RecoverSetBoot") /\ RecoverSetBoot(w)
  \/ Is("CreateSegment") /\ CreateSegment(w)
  \/ Is("CreateSegmentSync") /\ CreateSegmentSync(w)
  \/ Is("AppendRefused") /\ AppendRefused(w)
  \/ Is("AppendWrite") /\ wr[w].len = RankOf[Event.at]
     /\ AppendWrite(w, RankOf[Event.at + Event.bytes] - RankOf[Event.at])
  \/ Is("AppendSync") /\ AppendSync(w)
  \/ Is("AppendSyncFail") /\ AppendSyncFail(w)
  \/ Is("AppendCommit") /\ AppendCommit(w) /\ Event.swapped = (wr'[w].pc = "ready")
  \/ Is("AppendRevoke") /\ AppendRevoke(w)
  \/ Is("AppendRevokeSync") /\ AppendRevokeSync(w)
  \/ Is("ReadWord") /\ ReadWord /\ Event.booted = booted /\ (booted => word = Word)
  \/ Is("ReadSlots") /\ ReadSlots /\ rd'.len = RankOf[Event.length]
  \/ Is("ReadBracket") /\ ReadBracket /\ Event.booted = booted
  \/ Is("ReadShow") /\ ReadShow /\ RankOf[Event.at + Event.bytes] <= rd.len
     /\ \A p \in RankOf[Event.at] .. RankOf[Event.at + Event.bytes] - 1 : SegmentOf(p, rd'.list) = Event.epoch
  \/ Is("PowerLoss") /\ PowerLoss

TraceSpec == TraceStart /\ [][TraceNext]_<<vars, line>>
=============================================================================
