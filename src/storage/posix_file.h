// The steps of the posix driver in blocking form: create, append, fence, read, delete. Every system
// call goes through FileOps, in an order that tla/Fencing.tla proves; comments name its actions.
// The asynchronous Store around it is posix_store.h. Internal to the driver.
//
//   posix_format.h      the layout: pages, headers, slots, names of inodes
//   posix_context.h     what all steps share: system calls, flushes of folders, the log of steps
//   posix_inodes.h      the inodes of a file, open; the commit word
//   posix_names.h       creation, deletion, listings: claims and tombstones
//   posix_aside.h       damaged files: taken aside, deleted
//   posix_recovery.h    opening for append: fences, recovery after a power loss
//   posix_appender.h    an append: states, and what is durable in each of them
//   posix_reader.h      what is committed, and where its bytes are
//
// Rules that the steps keep (design rule "committed first"):
//  * Only the swap of the commit word from (our epoch, old length) to (our epoch, new length)
//    commits an append, and it comes after the flush of the bytes and of a slot that repeats the
//    length.
//  * A takeover swaps the epoch first, then makes an inode of its own. So a writer that was stopped
//    between any two steps and wakes up later writes only where nobody reads, and cannot commit.
//  * The word counts within one attachment (attachment.h). After a restart of the machine, or when
//    the device was attached anew, the length is that of the newest slot of the newest segment whose
//    bytes match their checksum.
#pragma once

#include "tailcast/storage/posix_appender.h"
#include "tailcast/storage/posix_aside.h"
#include "tailcast/storage/posix_context.h"
#include "tailcast/storage/posix_names.h"
#include "tailcast/storage/posix_reader.h"
#include "tailcast/storage/posix_recovery.h"
