------------------------------ MODULE Channel ------------------------------
(* The fabric's message channel: a client's messages to one server, over which mutations of the cache *)
(* travel. Over shm it is two rings in memory that the client owns, one for messages and one for      *)
(* answers, each written by one side and read by the other; who finds nothing to read sleeps, and is  *)
(* woken through a descriptor. Over tcp and verbs the rings are what the network carries, and sleep   *)
(* is the kernel's business. The specification leads: code follows it.                                *)
(*                                                                                                    *)
(*   send    = with a credit: put the message into the ring; then, if the server sleeps, wake it.     *)
(*   serve   = take a message, handle it, put the answer into the other ring; wake the client if it   *)
(*             sleeps. With nothing to take: say "I sleep", look once more, sleep.                    *)
(*   credit  = one for each message; it comes back with the answer, and not before: so the ring of    *)
(*             answers has room for every answer, and the server never waits for a client.            *)
(*   time-out= the client gives up waiting: the outcome is unknown, the credit stays away.            *)
(*   break   = the server died, or its door was closed. What was not answered has an unknown outcome. *)
(*             The next connection has rings of its own: nothing is sent again.                       *)
(*   close   = Invalidate. When it returns, no message is handled any more, until the door is opened. *)
(*                                                                                                    *)
(* What must hold: a message is handled once at most, in the order of sending; the client is told one *)
(* outcome of each, "answered" only of what was handled; rings and credits are bounded; behind a      *)
(* closed door nothing is handled; nobody sleeps beside work.                                         *)
(*                                                                                                    *)
(* Abstractions. One client, one server with one thread that serves; a message has room for one. What *)
(* a hostile client writes into its rings is not here: the server believes no index and no length     *)
(* before it has checked its own copy of it. Memory is sequentially consistent: where a side writes   *)
(* and then looks at the other's word, the code has a fence between the two.                          *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  MaxMessages,
  Window,      \* credits, and the room of each ring
  MaxTimeouts,
  MaxDeaths,   \* of the server
  MaxCloses,
  Bug          \* "none", or the planted bug; each is described where it is

VARIABLES
  up,          \* the client has a connection, as far as it knows
  serves,      \* the server knows this connection, too
  door,        \* "open", "closing", "closed"
  messages, answers,  \* the rings
  history,     \* what was ever put into this ring of messages
  sent, credits,
  outcome,     \* message -> "none", "answered", "unknown"
  handled,     \* in that order, by any life of the server
  sender, receiver,   \* steps of the client's two sides
  looked,      \* the server's flag, as the sender saw it (only of a planted bug)
  server, current,    \* step of the server, and the message that it has taken
  serverSleeps, clientSleeps,  \* flags in the rings
  wakeServer, wakeClient,      \* what the descriptors hold
  toldTwice, handledClosed,
  timeouts, deaths, closes

rings == <<messages, answers, history>>
flags == <<serverSleeps, clientSleeps, wakeServer, wakeClient>>
counts == <<timeouts, deaths, closes>>
verdicts == <<toldTwice, handledClosed>>
client == <<sent, credits, outcome, sender, receiver, looked>>
vars == <<up, serves, door, rings, client, handled, server, current, flags, verdicts, counts>>

Ids == 1 .. MaxMessages
Nothing == 0

-----------------------------------------------------------------------------
\* The client sends.
Send ==
  /\ up
  /\ sender = "idle"
  /\ sent < MaxMessages
  /\ credits > 0
  \* planted: it looks whether the server sleeps before the message is in the ring
  /\ IF Bug = "flag_before_message"
     THEN looked' = serverSleeps /\ sender' = "put" /\ UNCHANGED <<rings, sent, credits>>
     ELSE /\ messages' = Append(messages, sent + 1)
          /\ history' = Append(history, sent + 1)
          /\ sent' = sent + 1
          /\ credits' = credits - 1
          /\ sender' = "look"
          /\ UNCHANGED <<answers, looked>>
  /\ UNCHANGED <<up, serves, door, outcome, receiver, handled, server, current, flags, verdicts, counts>>

PutLate ==
  /\ sender = "put"
  /\ messages' = Append(messages, sent + 1)
  /\ history' = Append(history, sent + 1)
  /\ sent' = sent + 1
  /\ credits' = credits - 1
  /\ sender' = "idle"
  /\ wakeServer' = (wakeServer \/ looked)
  /\ UNCHANGED <<up, serves, door, answers, outcome, receiver, looked, handled, server, current, serverSleeps,
                 clientSleeps, wakeClient, verdicts, counts>>

LookAtServer ==
  /\ sender = "look"
  /\ sender' = "idle"
  /\ wakeServer' = (wakeServer \/ serverSleeps)
  /\ UNCHANGED <<up, serves, door, rings, sent, credits, outcome, receiver, looked, handled, server, current,
                 serverSleeps, clientSleeps, wakeClient, verdicts, counts>>

\* It reads answers.
Tell(id, what) ==
  /\ outcome' = [outcome EXCEPT ![id] = what]
  /\ toldTwice' = (toldTwice \/ outcome[id] # "none")

TakeAnswer ==
  /\ receiver = "look"
  /\ up \/ Bug = "late_answer"
  /\ answers # <<>>
  /\ LET id == Head(answers)
     \* planted: what comes of a connection that broke is still believed
     IN IF outcome[id] = "none" \/ Bug = "late_answer" THEN Tell(id, "answered")
        ELSE UNCHANGED <<outcome, toldTwice>>  \* it was given up: its answer brings the credit back
  /\ answers' = Tail(answers)
  /\ credits' = IF Bug = "credit_at_timeout" /\ outcome[Head(answers)] = "unknown" THEN credits ELSE credits + 1
  /\ UNCHANGED <<up, serves, door, messages, history, sent, sender, receiver, looked, handled, server, current,
                 flags, handledClosed, counts>>

ClientFindsNothing ==
  /\ up
  /\ receiver = "look"
  /\ answers = <<>>
  /\ receiver' = "nothing"
  /\ UNCHANGED <<up, serves, door, rings, sent, credits, outcome, sender, looked, handled, server, current, flags,
                 verdicts, counts>>

SayClientSleeps ==
  /\ receiver = "nothing"
  /\ clientSleeps' = TRUE
  \* planted: it does not look again
  /\ receiver' = IF Bug = "no_second_look" THEN "sleeps" ELSE "said"
  /\ UNCHANGED <<up, serves, door, rings, sent, credits, outcome, sender, looked, handled, server, current,
                 serverSleeps, wakeServer, wakeClient, verdicts, counts>>

ClientLooksAgain ==
  /\ receiver = "said"
  /\ receiver' = IF answers = <<>> THEN "sleeps" ELSE "look"
  /\ clientSleeps' = (answers = <<>>)
  /\ UNCHANGED <<up, serves, door, rings, sent, credits, outcome, sender, looked, handled, server, current,
                 serverSleeps, wakeServer, wakeClient, verdicts, counts>>

ClientWakes ==
  /\ receiver = "sleeps"
  /\ wakeClient
  /\ receiver' = "look"
  /\ wakeClient' = FALSE
  /\ clientSleeps' = FALSE
  /\ UNCHANGED <<up, serves, door, rings, sent, credits, outcome, sender, looked, handled, server, current,
                 serverSleeps, wakeServer, verdicts, counts>>

TimeOut(id) ==
  /\ timeouts < MaxTimeouts
  /\ id <= sent
  /\ outcome[id] = "none"
  /\ timeouts' = timeouts + 1
  /\ outcome' = [outcome EXCEPT ![id] = "unknown"]
  \* planted: who is given up gives its credit back
  /\ credits' = IF Bug = "credit_at_timeout" THEN credits + 1 ELSE credits
  /\ UNCHANGED <<up, serves, door, rings, sent, sender, receiver, looked, handled, server, current, flags,
                 verdicts, deaths, closes>>

\* The socket beside the rings tells it. Answers that lie in the ring are read first, or not: either way each
\* message has one outcome.
NoticeBreak ==
  /\ up
  /\ ~serves
  /\ sender = "idle"
  /\ up' = FALSE
  /\ outcome' = [id \in Ids |-> IF id <= sent /\ outcome[id] = "none" THEN "unknown" ELSE outcome[id]]
  /\ receiver' = "look"
  /\ answers' = IF Bug = "late_answer" THEN answers ELSE <<>>
  /\ UNCHANGED <<serves, door, messages, history, sent, credits, sender, looked, handled, server, current,
                 flags, verdicts, counts>>

Connect ==
  /\ ~up
  /\ door = "open"
  /\ server = "away"
  /\ up' = TRUE
  /\ serves' = TRUE
  \* planted: it offers its old rings, and a new life reads them from their beginning
  /\ messages' = IF Bug = "rings_reused" THEN history ELSE <<>>
  /\ history' = IF Bug = "rings_reused" THEN history ELSE <<>>
  /\ answers' = <<>>
  /\ credits' = Window
  /\ receiver' = "look"
  /\ server' = "look"
  /\ serverSleeps' = FALSE
  /\ clientSleeps' = FALSE
  /\ wakeServer' = FALSE
  /\ wakeClient' = FALSE
  /\ UNCHANGED <<door, sent, outcome, sender, looked, handled, current, verdicts, counts>>

-----------------------------------------------------------------------------
\* The server.
Take ==
  /\ serves
  /\ server = "look"
  /\ door = "open"
  /\ messages # <<>>
  /\ current' = Head(messages)
  /\ messages' = Tail(messages)
  /\ server' = "handle"
  /\ UNCHANGED <<up, serves, door, answers, history, client, handled, flags, verdicts, counts>>

Handle ==
  /\ server = "handle"
  /\ handled' = Append(handled, current)
  /\ handledClosed' = (handledClosed \/ door = "closed")
  /\ current' = Nothing
  /\ IF serves THEN answers' = Append(answers, current) /\ server' = "answered"
     ELSE UNCHANGED answers /\ server' = "away"
  /\ UNCHANGED <<up, serves, door, messages, history, client, flags, toldTwice, counts>>

LookAtClient ==
  /\ server = "answered"
  /\ server' = "look"
  /\ wakeClient' = (wakeClient \/ clientSleeps)
  /\ UNCHANGED <<up, serves, door, rings, client, handled, current, serverSleeps, clientSleeps, wakeServer,
                 verdicts, counts>>

ServerFindsNothing ==
  /\ serves
  /\ server = "look"
  /\ messages = <<>>
  /\ server' = "nothing"
  /\ UNCHANGED <<up, serves, door, rings, client, handled, current, flags, verdicts, counts>>

SayServerSleeps ==
  /\ server = "nothing"
  /\ serverSleeps' = TRUE
  /\ server' = "said"
  /\ UNCHANGED <<up, serves, door, rings, client, handled, current, clientSleeps, wakeServer, wakeClient,
                 verdicts, counts>>

ServerLooksAgain ==
  /\ server = "said"
  /\ server' = IF messages = <<>> THEN "sleeps" ELSE "look"
  /\ serverSleeps' = (messages = <<>>)
  /\ UNCHANGED <<up, serves, door, rings, client, handled, current, clientSleeps, wakeServer, wakeClient,
                 verdicts, counts>>

ServerWakes ==
  /\ server = "sleeps"
  /\ wakeServer
  /\ server' = "look"
  /\ wakeServer' = FALSE
  /\ serverSleeps' = FALSE
  /\ UNCHANGED <<up, serves, door, rings, client, handled, current, clientSleeps, wakeClient, verdicts, counts>>

\* kill -9, and a next life.
Die ==
  /\ deaths < MaxDeaths
  /\ deaths' = deaths + 1
  /\ serves' = FALSE
  /\ server' = "away"
  /\ current' = Nothing
  /\ door' = "open"
  /\ UNCHANGED <<up, rings, client, handled, flags, verdicts, timeouts, closes>>

\* Invalidate: by any thread. It waits for who handles a message.
Close ==
  /\ closes < MaxCloses
  /\ door = "open"
  /\ closes' = closes + 1
  /\ door' = "closing"
  /\ UNCHANGED <<up, serves, rings, client, handled, server, current, flags, verdicts, timeouts, deaths>>

Closed ==
  /\ door = "closing"
  /\ server # "handle" \/ Bug = "close_does_not_wait"
  /\ door' = "closed"
  /\ serves' = FALSE
  /\ server' = IF server = "handle" THEN server ELSE "away"
  /\ UNCHANGED <<up, rings, client, handled, current, flags, verdicts, counts>>

Reopen ==
  /\ door = "closed"
  /\ door' = "open"
  /\ UNCHANGED <<up, serves, rings, client, handled, server, current, flags, verdicts, counts>>

-----------------------------------------------------------------------------
Init ==
  /\ up = FALSE
  /\ serves = FALSE
  /\ door = "open"
  /\ messages = <<>> /\ answers = <<>> /\ history = <<>>
  /\ sent = 0
  /\ credits = Window
  /\ outcome = [id \in Ids |-> "none"]
  /\ handled = <<>>
  /\ sender = "idle" /\ receiver = "look"
  /\ looked = FALSE
  /\ server = "away" /\ current = Nothing
  /\ serverSleeps = FALSE /\ clientSleeps = FALSE /\ wakeServer = FALSE /\ wakeClient = FALSE
  /\ toldTwice = FALSE /\ handledClosed = FALSE
  /\ timeouts = 0 /\ deaths = 0 /\ closes = 0

ClientSteps ==
  \/ PutLate \/ LookAtServer \/ TakeAnswer \/ ClientFindsNothing \/ SayClientSleeps \/ ClientLooksAgain
  \/ ClientWakes \/ NoticeBreak \/ Connect
ServerSteps ==
  \/ Take \/ Handle \/ LookAtClient \/ ServerFindsNothing \/ SayServerSleeps \/ ServerLooksAgain \/ ServerWakes
  \/ Closed \/ Reopen

Next == Send \/ ClientSteps \/ ServerSteps \/ (\E id \in Ids : TimeOut(id)) \/ Die \/ Close

\* Each thread goes on as long as it can; nobody has to send, to give up, to die or to close.
Fair ==
  /\ WF_vars(PutLate \/ LookAtServer) /\ WF_vars(TakeAnswer)
  /\ WF_vars(ClientFindsNothing \/ SayClientSleeps \/ ClientLooksAgain)
  /\ WF_vars(ClientWakes) /\ WF_vars(NoticeBreak) /\ WF_vars(Connect)
  /\ WF_vars(Take \/ Handle \/ LookAtClient \/ ServerFindsNothing \/ SayServerSleeps \/ ServerLooksAgain
             \/ ServerWakes)
  /\ WF_vars(Closed) /\ WF_vars(Reopen)

Spec == Init /\ [][Next]_vars
LiveSpec == Spec /\ Fair

-----------------------------------------------------------------------------
\* Nothing is doubled, and nothing overtakes.
InOrder == \A i, j \in DOMAIN handled : i < j => handled[i] < handled[j]

\* One outcome of each message, and a true one.
Truthful ==
  /\ ~toldTwice
  /\ \A id \in Ids : outcome[id] = "answered" => \E i \in DOMAIN handled : handled[i] = id

\* So the server never waits for room, and a client can't make it keep more.
Bounded == Len(messages) <= Window /\ Len(answers) <= Window /\ credits <= Window

\* A replica that was removed, or that may have been given up, takes nothing any more.
ClosedIsClosed == ~handledClosed

\* Nothing is lost in silence, and nobody sleeps beside work.
AllEnd == \A id \in Ids : (sent >= id) ~> (outcome[id] # "none")
=============================================================================
