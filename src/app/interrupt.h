// What an interrupt was that command.h's CatchInterrupts caught.
#pragma once

namespace tailcast::app {

// Whether it was Ctrl-C, so that somebody waits for the end; else SIGTERM, or none.
bool InterruptedAtTheKeyboard();

}  // namespace tailcast::app
