---------------------------- MODULE ChannelTrace ----------------------------
(* Is what a client and a server saw of one message channel, and of those after it, a behaviour of     *)
(* Channel? The events in one total order, each at the moment of its step. TraceSupport says how a     *)
(* trace is judged. Messages are numbered in the order of sending, over all connections.               *)
(*                                                                                                    *)
(*   Connect            the client has a channel                                                      *)
(*   Send      id       before it is sent                                                             *)
(*   Handle    id       the server's handler was called for it                                        *)
(*   Answered  id       the client was told the answer                                                *)
(*   GiveUp    id       the client waits no longer                                                    *)
(*   Late      id       the answer to one that was given up has come                                  *)
(*   Broken             the client was told that its channel broke                                    *)
(*   Close, Closed      before Invalidate, and when it has returned                                   *)
(*   Reopen             Renew                                                                         *)
(*   Die                the server is gone, or about to be: nothing of it is seen any more            *)
(*                                                                                                    *)
(* Silent: how either side falls asleep and is woken, and that the server takes a message out of the  *)
(* ring.                                                                                              *)
EXTENDS Channel, TraceSupport

TraceMaxMessages == MaxOf("id", 1)
TraceMaxTimeouts == CountOf("GiveUp")
TraceMaxDeaths == CountOf("Die")
TraceMaxCloses == CountOf("Close")

Silent ==
  /\ line' = line
  /\ \/ LookAtServer \/ ClientFindsNothing \/ SayClientSleeps \/ ClientLooksAgain \/ ClientWakes
     \/ Take \/ LookAtClient \/ ServerFindsNothing \/ SayServerSleeps \/ ServerLooksAgain \/ ServerWakes

Told(what) == outcome[Event.id] = what

TraceNext ==
  \/ Silent
  \/ Is("Connect") /\ Connect
  \/ Is("Send") /\ Send /\ sent' = Event.id
  \/ Is("Handle") /\ Handle /\ current = Event.id
  \/ Is("Answered") /\ TakeAnswer /\ Head(answers) = Event.id /\ Told("none")
  \/ Is("Late") /\ TakeAnswer /\ Head(answers) = Event.id /\ Told("unknown")
  \/ Is("GiveUp") /\ TimeOut(Event.id)
  \/ Is("Broken") /\ NoticeBreak
  \/ Is("Close") /\ Close
  \/ Is("Closed") /\ Closed
  \/ Is("Reopen") /\ Reopen
  \/ Is("Die") /\ Die

TraceSpec == Init /\ TraceInit /\ [][TraceNext]_<<vars, line>>
=============================================================================
