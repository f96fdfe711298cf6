// Publishing from commands that catch interrupts (command.h): Producer's own waits last until there
// is room, whatever a person at the keyboard wants.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/base/time.h"
#include "tailcast/producer/producer.h"

namespace tailcast::app {

// As Producer::Publish with an acknowledgement. False: it found no room before an interrupt came,
// and was not published.
Result<bool> PublishUntilInterrupted(producer::Producer& producer, std::string_view message,
                                     const std::function<void(const producer::Ack&)>& ack,
                                     int32_t shard, producer::Producer::Headers headers = {});

// As Producer::Close, which may take as long as messages become durable, `durable` so many by now,
// and a minute without any; an interrupt before or while it waits leaves a second to what is under
// way, SIGTERM, which nobody waits for at a keyboard, eight. DeadlineExceeded then says what was
// not acknowledged, or sealed, and what the primary layer says.
Status CloseUntilInterrupted(producer::Producer& producer, const std::atomic<int64_t>& durable);

// "12 messages durable, 3 failed (not in the stream), 1 unknown (may be in it)", of the latter two
// what there is.
std::string OutcomeText(int64_t durable, int64_t failed, int64_t unknown);

}  // namespace tailcast::app
