// Opening a file for append: fencing earlier writers and, after the page cache was lost, finding
// out what the disk kept. Internal to the driver.
//
// The word counts within one attachment (attachment.h): a restart of the machine ends it, and so
// does a device or volume that is attached anew. When its tag is not this attachment's, the length
// is that of the newest slot of the newest segment whose bytes match their checksum. The models
// call both a restart, and the tag the boot id:
//
//   booted:      read word --------------------------------------> swap to (epoch + 1, length)
//   otherwise:   read word, tag -> segments, slots -> tag again -> swap to (highest epoch + 1,
//                                                         |        recovered length) -> store tag
//                                       it is ours now:   |
//                start over <-----------------------------+
//   then:        make the segment of the new epoch, durably -> look at the word once more
//
// The swap expects the word as it was read first, and the tag is stored last. So of two openers at
// once one swaps, and the other starts over; and whoever sees this attachment's tag sees a word
// that counts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tailcast/base/status.h"
#include "tailcast/storage/posix_appender.h"
#include "tailcast/storage/posix_context.h"
#include "tailcast/storage/posix_format.h"
#include "tailcast/storage/posix_inodes.h"

namespace tailcast::storage::posix {

// Errors as Store::OpenFencing. `folder` and `name` were checked by the caller.
Result<std::unique_ptr<Appender>> OpenFencing(const Context& c, const std::string& folder,
                                              const std::string& name);

// Length and highest epoch from what the disk kept. A file that was written without flushes has the
// word only: DataLoss after a restart of the machine. DataLoss, too: the slots contradict each
// other or the bytes of a slot that was acknowledged, so that the disk has lost what it said was
// flushed. spec Fencing: Recovered.
Result<CommitWord> Recover(const Context& c, const FirstInode& file, const Segments& segments);

// Whether what was recovered from slots is void, given that by now the file's tag is this boot's:
// somebody has recovered the file meanwhile and may have begun to append, so a slot that we saw may
// be of bytes that are not flushed. spec Fencing: RecoverBracket, ReadBracket.
bool MustStartOver(bool booted_meanwhile);

// What a takeover starts from after a restart of the machine. The epoch in the word on disk may lag
// behind the segments, and the other way round (a fence whose segment was lost); it counts only if
// the power loss left its sector whole.
CommitWord WordAfterRestart(CommitWord on_disk, bool sector_is_whole, CommitWord recovered);

// The word on disk only ever says what was acknowledged. DataLoss: that is more than was recovered,
// which a disk that keeps what it flushed never shows. `on_disk` was read before what was
// recovered, and its sector is whole. spec Fencing: WordIsCovered.
Status CheckCovers(const FirstInode& file, CommitWord on_disk, CommitWord recovered);

}  // namespace tailcast::storage::posix
