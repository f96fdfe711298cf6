---- MODULE TraceSupport ----
(* What every trace spec needs. `run.py trace` generates module TraceLog from a JSON-lines file:     *)
(* TraceEvents is the sequence of its records; TraceCount, TraceMax and TraceStrings say how often   *)
(* an event occurs, and the largest integer and the strings of a field, for a spec's constants (TLC  *)
(* would compute them anew for each state). A trace spec XTrace EXTENDS X and TraceSupport, conjoins *)
(* every action of X with Is("ActionName") and with what the event says of the values, and lists     *)
(* TraceNotFinished as an invariant and TraceProgress as a constraint.                               *)
(*                                                                                                   *)
(* The trace is a behaviour of X exactly when TLC reports that TraceNotFinished is *violated*: some  *)
(* behaviour of X consumed the whole trace. When TLC ends without a violation no behaviour did, and  *)
(* the largest TraceReached that was printed is the number of the first event that fits nothing.     *)
(*                                                                                                   *)
(* As TLC prints the whole behaviour with a violation, a trace spec with large states leaves         *)
(* TraceNotFinished out: a TraceReached beyond the last event then says that the trace was accepted, *)
(* and any invariant may still be listed.                                                            *)
EXTENDS Naturals, Sequences, TLC, TraceLog

VARIABLE line                       \* the next event of the trace to be explained

ASSUME TLCSet(1, 0)                 \* the furthest line so far (one worker only)

TraceInit == line = 1

Event == TraceEvents[line]          \* the event that the current step must explain

Is(name) == /\ line <= Len(TraceEvents)
            /\ Event.event = name
            /\ line' = line + 1

\* How often the trace has this event; the largest integer of a field, or `least`; the strings of a field.
CountOf(name) == IF name \in DOMAIN TraceCount THEN TraceCount[name] ELSE 0
MaxOf(field, least) == IF field \in DOMAIN TraceMax /\ TraceMax[field] > least THEN TraceMax[field] ELSE least
StringsOf(field) == IF field \in DOMAIN TraceStrings THEN TraceStrings[field] ELSE {}

Has(field) == field \in DOMAIN Event

TraceNotFinished == line <= Len(TraceEvents)

TraceProgress == \/ line <= TLCGet(1)
                 \/ TLCSet(1, line) /\ PrintT(<<"TraceReached", line>>)
====
