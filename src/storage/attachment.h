// How long what processes share of a folder's page cache stays what it is. Internal to the posix
// driver.
//
// A word that was written through a mapping and not flushed is gone when the page cache is: with
// the machine, and also when the device or volume of the folder is taken away and attached again,
// or when the folder is seen in a snapshot. Then nobody of before is there any more: a process that
// has a file of the folder open keeps the page cache, and who saw the old device sees only that.
// So:
//
//   an attachment = as long as one process has the folder's file `.attached` open after another
//
// Each process holds a shared lock on it. Who finds none held is the first of a new attachment,
// and writes a new random number into the file before it shares its lock. The tag of an attachment
// is a hash of that number and of the kernel's boot id.
//
// When all processes were killed and the page cache lived on, it shows the next attachment what was
// written and never flushed. The first process of an attachment has the file system write all of
// that out (syncfs) before anybody believes it (spec Fencing: Attach).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tailcast/base/status.h"

namespace tailcast::storage {

// Any thread. Copies of this object's descriptor in forked processes hold the attachment, too.
class Attachment {
 public:
  // `root`: a descriptor of the folder; `path` is for errors. Blocks while another process of the
  // folder is between lock and number, and its file system writes out what it has.
  //   PermissionDenied   the file cannot be opened for writing
  //   Unavailable        another process was stopped there, or I/O
  //   ResourceExhausted  the disk is full and the file is new
  static Result<std::unique_ptr<Attachment>> Join(int root, const std::string& path);
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  // Differs between any two attachments. Not 0.
  uint64_t tag() const { return tag_; }
  // Differs between any two boots of the machine. Not 0.
  uint64_t boot_tag() const { return boot_tag_; }

 private:
  Attachment(int fd, uint64_t tag, uint64_t boot_tag) : fd_(fd), tag_(tag), boot_tag_(boot_tag) {}

  const int fd_;  // has the lock
  const uint64_t tag_;
  const uint64_t boot_tag_;
};

}  // namespace tailcast::storage
