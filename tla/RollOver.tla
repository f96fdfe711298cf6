------------------------------ MODULE RollOver ------------------------------
(* The message files of one shard: names, creation on a sequence number, roll-over, takeover, half   *)
(* pairs, the seal; and a consumer of another cell where the copies of several files race.           *)
(*                                                                                                   *)
(* Design rule 4, "In order, at least once": what a consumer got of a shard is always a prefix of    *)
(* what its producer committed, across roll-overs. It needs a shard that never forks: whoever opens  *)
(* file n+1 holds the fence on n, so that n's length is final, and names n+1 after it.               *)
(*                                                                                                   *)
(*   pair      = data file, created first, and index file, created last: that commits the pair.      *)
(*   message   = a payload in the data file, then, after its flush, a record in the index file. The  *)
(*               record makes it a message and gives it its number.                                  *)
(*   name      = sequence number, and the record and the byte of the shard at which the file starts. *)
(*   roll-over = the owner, with no append open, creates n+1.                                        *)
(*   takeover  = list; fence both files of the head, completing a half pair; its seal is what the    *)
(*               index covers; create n+1; when n+1 is there already, begin again.                   *)
(*                                                                                                   *)
(* Abstractions. A payload is one byte long and is its own identity, numbered as it is made. The     *)
(* primary layer keeps its contract, which Fencing checks: an append is applied, refused because a   *)
(* later epoch holds the file, or unknown, and an unknown one may still be applied by itself until   *)
(* the epoch is raised. Creation is exclusive on the sequence number and part, in one step; Claim    *)
(* shows how. A producer may stop for ever after any step; another one may open the shard at any     *)
(* time, on purpose or by mistake. The other cell has no metadata cache: what names alone say must   *)
(* do. Fairness: the copies and the consumer go on; no producer ever has to.                         *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Producers,
  MaxSeq,      \* sequence numbers 1 .. MaxSeq
  MaxMessages, \* payloads that are ever made
  MaxOpens,    \* times that some producer opens the shard
  Seal,        \* "covered": n+1 starts after what n's index covers. "data": after all of n's data
  Completing,  \* TRUE: an opener completes a half pair. FALSE: it fences it and leaves it half
  Bytes,       \* who reads bytes instead of messages: "none", "covered" (only up to what flushed
               \* index records cover), or "all" (all that the data file shows)
  Consuming,   \* TRUE: there is a consumer in another cell
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  data,        \* seq -> data file
  index,       \* seq -> index file
  pr,          \* producer -> its state
  made,        \* number of payloads made
  opens,
  acked,       \* set of <<record number, message>> that were acknowledged
  copy,        \* seq -> the copy in the other cell
  at,          \* the consumer: file, and records delivered of it
  got,         \* what the consumer delivered, in order
  bytes        \* set of <<byte position, payload>> that a reader of bytes was shown

vars == <<data, index, pr, made, opens, acked, copy, at, got, bytes>>

Seqs == 1 .. MaxSeq
NoData == [there |-> FALSE, e |-> 0, pay |-> <<>>, record |-> 0, byte |-> 0]
NoIndex == [there |-> FALSE, e |-> 0, len |-> 0]
NoCopy == [there |-> FALSE, pay |-> 0, len |-> 0]
Nothing == [part |-> "none", n |-> 0, e |-> 0, at |-> 0, m |-> 0]
Idle == [pc |-> "idle", n |-> 0, de |-> 0, ie |-> 0, dlen |-> 0, ilen |-> 0, late |-> Nothing]

\* The shard is somebody else's now. An append of ours may still be under way.
Lost(p) == [Idle EXCEPT !.late = pr[p].late]

Newest == IF \E n \in Seqs : data[n].there
        THEN CHOOSE n \in Seqs : data[n].there /\ \A k \in Seqs : data[k].there => k <= n
        ELSE 0

\* The messages of a file are those that its index covers; those of the shard are all of them, in order.
\* (The bound on the length matters to planted bugs only.)
Messages(n) == SubSeq(data[n].pay, 1, IF index[n].len < Len(data[n].pay) THEN index[n].len ELSE Len(data[n].pay))
RECURSIVE LogFrom(_)
LogFrom(n) == IF n > MaxSeq THEN <<>> ELSE Messages(n) \o LogFrom(n + 1)
Log == LogFrom(1)

-----------------------------------------------------------------------------
(* Opening a shard: the takeover. *)

Open(p) ==
  /\ pr[p].pc = "idle"
  /\ opens < MaxOpens
  /\ Newest < MaxSeq
  /\ opens' = opens + 1
  /\ pr' = [pr EXCEPT ![p].pc = "list"]
  /\ UNCHANGED <<data, index, made, acked, copy, at, got, bytes>>

\* The head is the highest sequence number that has a data file, be its pair whole or half.
List(p) ==
  /\ pr[p].pc = "list"
  /\ pr' = [pr EXCEPT ![p] = [@ EXCEPT
       !.pc = IF Newest = 0 THEN "create" ELSE "fence", !.n = Newest, !.de = 0, !.ie = 0,
       \* planted: lengths are read before the fence
       !.dlen = IF Bug = "seal_before_fence" /\ Newest > 0 THEN Len(data[Newest].pay) ELSE 0,
       !.ilen = IF Bug = "seal_before_fence" /\ Newest > 0 THEN index[Newest].len ELSE 0]]
  /\ UNCHANGED <<data, index, made, opens, acked, copy, at, got, bytes>>

\* planted: the opener steps over a half pair without fencing its data file
HalfPairIgnored(p) == Bug = "half_pair_not_fenced" /\ ~index[pr[p].n].there

FenceData(p) ==
  LET n == pr[p].n IN
  /\ pr[p].pc = "fence"
  /\ pr[p].de = 0
  /\ IF HalfPairIgnored(p)
     THEN UNCHANGED data /\ pr' = [pr EXCEPT ![p].de = 1]
     ELSE /\ data' = [data EXCEPT ![n].e = @ + 1]
          /\ pr' = [pr EXCEPT ![p].de = data'[n].e,
                              ![p].dlen = IF Bug = "seal_before_fence" THEN @ ELSE Len(data[n].pay)]
  /\ UNCHANGED <<index, made, opens, acked, copy, at, got, bytes>>

FenceIndex(p) ==
  LET n == pr[p].n IN
  /\ pr[p].pc = "fence"
  /\ pr[p].ie = 0
  /\ index[n].there
  /\ IF Bug = "index_not_fenced"
     THEN UNCHANGED index /\ pr' = [pr EXCEPT ![p].ie = 1, ![p].ilen = index[n].len]
     ELSE /\ index' = [index EXCEPT ![n].e = @ + 1]
          /\ pr' = [pr EXCEPT ![p].ie = index'[n].e,
                              ![p].ilen = IF Bug = "seal_before_fence" THEN @ ELSE index[n].len]
  /\ UNCHANGED <<data, made, opens, acked, copy, at, got, bytes>>

\* A half pair is completed with an empty index file, so that sequence numbers have no holes. Its
\* creator finds that file there and knows that it lost the shard. Left half, it stays without
\* messages too, since its data file is fenced; only the number may or may not show up.
CompletePair(p) ==
  LET n == pr[p].n IN
  /\ pr[p].pc = "fence"
  /\ pr[p].ie = 0
  /\ ~index[n].there
  \* To leave it half, one has to see that it is half after its data file is fenced: else the pair
  \* may be committed, and have messages, between that look and the fence.
  /\ Completing \/ pr[p].de # 0 \/ Bug = "half_seen_before_fence"
  /\ index' = IF ~Completing \/ Bug = "half_pair_not_fenced" THEN index
              ELSE [index EXCEPT ![n] = [NoIndex EXCEPT !.there = TRUE, !.e = 1]]
  /\ pr' = [pr EXCEPT ![p].ie = 1, ![p].ilen = 0]
  /\ UNCHANGED <<data, made, opens, acked, copy, at, got, bytes>>

Fenced(p) ==
  /\ pr[p].pc = "fence"
  /\ pr[p].de # 0
  /\ pr[p].ie # 0
  /\ pr' = [pr EXCEPT ![p].pc = IF pr[p].n < MaxSeq THEN "create" ELSE "full"]
  /\ UNCHANGED <<data, index, made, opens, acked, copy, at, got, bytes>>

\* Exclusive on the sequence number. When the file is there, somebody else opened it: begin again.
\* Nothing else tells that the head moved on, and nothing else is needed.
CreateData(p) ==
  LET n == pr[p].n
      new == [there |-> TRUE, e |-> 1, pay |-> <<>>,
              record |-> IF n = 0 THEN 0 ELSE data[n].record + pr[p].ilen,
              byte |-> IF n = 0 THEN 0
                       ELSE data[n].byte + (IF Seal = "covered" THEN pr[p].ilen ELSE pr[p].dlen)] IN
  /\ pr[p].pc = "create"
  \* planted: exclusive on the whole name, which carries a time, is not exclusive at all
  /\ IF data[n + 1].there /\ Bug # "name_not_key"
     THEN /\ pr' = [pr EXCEPT ![p].pc = "list"]
          /\ UNCHANGED data
     ELSE /\ data' = [data EXCEPT ![n + 1] = new]
          /\ pr' = [pr EXCEPT ![p] = [@ EXCEPT !.pc = "index", !.n = n + 1, !.de = 1, !.dlen = 0]]
  /\ UNCHANGED <<index, made, opens, acked, copy, at, got, bytes>>

\* The commit of the pair. When the index file is there, an opener completed our half pair: the
\* shard is his.
CreateIndex(p) ==
  LET n == pr[p].n IN
  /\ pr[p].pc = "index"
  /\ IF index[n].there
     THEN /\ pr' = [pr EXCEPT ![p] = Lost(p)]
          /\ UNCHANGED index
     ELSE /\ index' = [index EXCEPT ![n] = [NoIndex EXCEPT !.there = TRUE, !.e = 1]]
          /\ pr' = [pr EXCEPT ![p] = [@ EXCEPT !.pc = "ready", !.ie = 1, !.ilen = 0]]
  /\ UNCHANGED <<data, made, opens, acked, copy, at, got, bytes>>

-----------------------------------------------------------------------------
(* Appends. An unknown one was applied, or is under way and may be applied later, or never. *)

\* After an unknown outcome the handle is dead, and the rest goes to a new file: by way of a fence on
\* this one, which also settles whether the append is in it.
AfterUnknown(p) ==
  \* planted: n+1 is opened with the lengths that were acknowledged, without a fence on n
  [pr[p] EXCEPT !.pc = IF Bug = "roll_without_fence" /\ pr[p].n < MaxSeq THEN "create" ELSE "list"]

AppendPayload(p) ==
  LET n == pr[p].n
      m == made + 1
      ok == data[n].e = pr[p].de IN
  /\ pr[p].pc = "ready"
  /\ made < MaxMessages
  /\ made' = m
  /\ \/ /\ ok
        /\ data' = [data EXCEPT ![n].pay = Append(@, m)]
        /\ \/ pr' = [pr EXCEPT ![p] = [@ EXCEPT !.pc = "payload", !.dlen = @ + 1]]
           \/ pr' = [pr EXCEPT ![p] = AfterUnknown(p)]
     \/ /\ ~ok
        /\ pr' = [pr EXCEPT ![p] = Lost(p)]
        /\ UNCHANGED data
     \/ /\ pr[p].late = Nothing
        /\ pr' = [pr EXCEPT ![p] = [AfterUnknown(p) EXCEPT
                    !.late = [part |-> "data", n |-> n, e |-> pr[p].de, at |-> pr[p].dlen, m |-> m]]]
        /\ UNCHANGED data
  /\ UNCHANGED <<index, opens, acked, copy, at, got, bytes>>

AppendRecord(p) ==
  LET n == pr[p].n
      ok == index[n].e = pr[p].ie IN
  /\ pr[p].pc = "payload"
  /\ \/ /\ ok
        /\ index' = [index EXCEPT ![n].len = @ + 1]
        /\ \/ /\ pr' = [pr EXCEPT ![p] = [@ EXCEPT !.pc = "ready", !.ilen = @ + 1]]
              /\ acked' = acked \cup {<<data[n].record + pr[p].ilen, data[n].pay[pr[p].dlen]>>}
           \/ /\ pr' = [pr EXCEPT ![p] = AfterUnknown(p)]
              /\ UNCHANGED acked
     \/ /\ ~ok
        /\ pr' = [pr EXCEPT ![p] = Lost(p)]
        /\ UNCHANGED <<index, acked>>
     \/ /\ pr[p].late = Nothing
        /\ pr' = [pr EXCEPT ![p] = [AfterUnknown(p) EXCEPT
                    !.late = [part |-> "index", n |-> n, e |-> pr[p].ie, at |-> pr[p].ilen, m |-> 0]]]
        /\ UNCHANGED <<index, acked>>
  /\ UNCHANGED <<data, made, opens, copy, at, got, bytes>>

\* An append with unknown outcome lands by itself, if nobody raised the epoch, or never.
LateAppend(p) ==
  LET a == pr[p].late IN
  /\ a # Nothing
  /\ data' = IF a.part = "data" /\ data[a.n].e = a.e /\ Len(data[a.n].pay) = a.at
             THEN [data EXCEPT ![a.n].pay = Append(@, a.m)] ELSE data
  /\ index' = IF a.part = "index" /\ index[a.n].e = a.e /\ index[a.n].len = a.at
              THEN [index EXCEPT ![a.n].len = @ + 1] ELSE index
  /\ pr' = [pr EXCEPT ![p].late = Nothing]
  /\ UNCHANGED <<made, opens, acked, copy, at, got, bytes>>

\* The owner rolls over with nothing under way. Had somebody fenced n meanwhile, n has the length
\* that the owner knows all the same: the other one does not append to n.
RollOver(p) ==
  /\ pr[p].pc = "ready"
  /\ pr[p].ilen > 0
  /\ pr[p].n < MaxSeq
  /\ pr' = [pr EXCEPT ![p].pc = "create"]
  /\ UNCHANGED <<data, index, made, opens, acked, copy, at, got, bytes>>

-----------------------------------------------------------------------------
(* The other cell: an operation for each whole pair, in any order, and for each part. *)

CopyCreate(n) ==
  /\ Consuming
  /\ index[n].there
  /\ ~copy[n].there
  /\ copy' = [copy EXCEPT ![n].there = TRUE]
  /\ UNCHANGED <<data, index, pr, made, opens, acked, at, got, bytes>>

CopyData(n) ==
  /\ copy[n].there
  /\ copy[n].pay < Len(data[n].pay)
  /\ copy' = [copy EXCEPT ![n].pay = @ + 1]
  /\ UNCHANGED <<data, index, pr, made, opens, acked, at, got, bytes>>

\* A record only after the flush of the payload that it covers.
CopyIndex(n) ==
  /\ copy[n].there
  /\ copy[n].len < index[n].len
  /\ copy[n].len < copy[n].pay
  /\ copy' = [copy EXCEPT ![n].len = @ + 1]
  /\ UNCHANGED <<data, index, pr, made, opens, acked, at, got, bytes>>

-----------------------------------------------------------------------------
(* The consumer. *)

Deliver ==
  /\ copy[at.n].there
  /\ at.i < copy[at.n].len
  /\ got' = Append(got, data[at.n].pay[at.i + 1])
  /\ at' = [at EXCEPT !.i = @ + 1]
  /\ UNCHANGED <<data, index, pr, made, opens, acked, copy, bytes>>

\* On to the next file that is known here, when every record up to its start has been delivered: the
\* start in its name is the seal of the file before it. A file that has not arrived yet is a hole,
\* since the numbers do not meet; when they meet, a missing file between them has no messages.
NextFile ==
  /\ \E n \in Seqs :
       /\ n > at.n
       /\ copy[n].there
       /\ \A k \in at.n + 1 .. n - 1 : ~copy[k].there
       /\ \/ data[n].record = data[at.n].record + at.i
          \* planted: the next number is there, and all of this file that is here was delivered
          \/ Bug = "seal_not_awaited" /\ n = at.n + 1 /\ at.i = copy[at.n].len
          \* planted: whatever file is the next here
          \/ Bug = "hole_skipped" /\ at.i = copy[at.n].len
       \* planted: every number is waited for
       /\ Bug # "number_awaited" \/ (n = at.n + 1 /\ copy[at.n].there)
       /\ at' = [n |-> n, i |-> 0]
  /\ UNCHANGED <<data, index, pr, made, opens, acked, copy, got, bytes>>

\* A reader of bytes takes what the data file shows, at its position in the shard.
ReadBytes(n) ==
  /\ Bytes # "none"
  /\ index[n].there
  /\ LET len == IF Bytes = "covered" THEN index[n].len ELSE Len(data[n].pay) IN
     bytes' = bytes \cup {<<data[n].byte + i - 1, data[n].pay[i]>> : i \in 1 .. len}
  /\ bytes' # bytes
  /\ UNCHANGED <<data, index, pr, made, opens, acked, copy, at, got>>

-----------------------------------------------------------------------------
Init ==
  /\ data = [n \in Seqs |-> NoData]
  /\ index = [n \in Seqs |-> NoIndex]
  /\ pr = [p \in Producers |-> Idle]
  /\ made = 0
  /\ opens = 0
  /\ acked = {}
  /\ copy = [n \in Seqs |-> NoCopy]
  /\ at = [n |-> 1, i |-> 0]
  /\ got = <<>>
  /\ bytes = {}

Downstream == \/ \E n \in Seqs : CopyCreate(n) \/ CopyData(n) \/ CopyIndex(n)
              \/ Deliver \/ NextFile

Next ==
  \/ \E p \in Producers :
       \/ Open(p) \/ List(p) \/ FenceData(p) \/ FenceIndex(p) \/ CompletePair(p) \/ Fenced(p)
       \/ CreateData(p) \/ CreateIndex(p)
       \/ AppendPayload(p) \/ AppendRecord(p) \/ LateAppend(p) \/ RollOver(p)
  \/ Downstream
  \/ \E n \in Seqs : ReadBytes(n)

Spec == Init /\ [][Next]_vars

\* Each copy and the consumer go on as long as they can. (One weak fairness on their disjunction is
\* enough: each of these steps can be taken only a bounded number of times.)
FairSpec == Spec /\ WF_vars(Downstream)

-----------------------------------------------------------------------------
\* The shard does not fork: a file starts where the one before it ends, for ever, so that nothing can
\* be added to a file that has a successor. Sequence numbers have no holes.
NoFork ==
  \A n \in 1 .. MaxSeq - 1 : data[n + 1].there =>
    /\ data[n].there
    /\ data[n + 1].record = data[n].record + index[n].len

\* An acknowledged message is for ever the message of its number.
AckedKept == \A a \in acked : a[1] < Len(Log) /\ Log[a[1] + 1] = a[2]

\* "In order": what the consumer got is a prefix of what was committed.
InOrder == Len(got) <= Len(Log) /\ \A i \in 1 .. Len(got) : got[i] = Log[i]

\* A position of the shard never shows two different bytes.
BytesMeanTheSame == \A b \in bytes : \A c \in bytes : b[1] = c[1] => b[2] = c[2]

\* No message is in the shard twice.
NoDuplicates == \A i, k \in 1 .. Len(Log) : Log[i] = Log[k] => i = k

\* "Complete": once the producers do no more (their numbers are bounded, so some time they do not), the
\* consumer gets everything that was committed.
Complete == <>[](got = Log)

Symmetric == Permutations(Producers)
=============================================================================
