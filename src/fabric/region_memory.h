// The exporter's side of the memory: one memfd per region and one for the control page.
//
// The exporter keeps its writable mapping, then seals the file against new writable mappings,
// writes and resizing. Readers get descriptors opened read-only, so neither the descriptor nor the
// file it names (through /proc) lets them change a byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tailcast/base/status.h"
#include "tailcast/fabric/control_page.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

// A mapping that unmaps itself.
class Mapping {
 public:
  Mapping() = default;
  Mapping(char* data, uint64_t size) : data_(data), size_(size) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  // `writable` asks for PROT_WRITE too.
  static Result<Mapping> Map(int fd, uint64_t size, bool writable);
  // Zeroed memory of this process alone, which is there and which children don't get: a device may
  // write to it.
  static Result<Mapping> ForDevice(uint64_t size);
  char* data() const { return data_; }
  uint64_t size() const { return size_; }
  // Unmaps so many bytes (whole pages) at its beginning, or what is left.
  void DropFront(uint64_t bytes);

 private:
  char* data_ = nullptr;
  uint64_t size_ = 0;
};

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// Not thread-safe but for Beat, Invalidate, Renew, PopulateNext and the reads of generations.
class RegionMemory {
 public:
  struct Region {
    uint64_t size = 0;     // as asked for; the mappings are rounded up to pages
    Mapping writable;      // the owner's
    Mapping readable;      // the engine's own view: it cannot write by mistake
    Descriptor read_only;  // what readers are handed
  };

  RegionMemory(ExporterIncarnation incarnation, Duration beat_timeout) noexcept;

  Result<std::span<char>> Add(RegionId id, uint64_t size);
  // Numbers without a hole; makes the control page and the first generations. Once.
  Status Seal();

  // Maps the next piece of the regions, so that neither the owner nor the engine has to wait for a
  // page when it is needed, and readers of this host find many of them at a time. False: there is
  // none left. One thread, after Seal; about 0.3 ms.
  bool PopulateNext();

  const std::vector<Region>& regions() const { return regions_; }
  const Descriptor& control_read_only() const { return control_read_only_; }
  const ControlPage& control() const { return *control_; }
  ExporterIncarnation incarnation() const { return incarnation_; }
  Generation generation(RegionId id) const {
    return control_->generations[id].load(std::memory_order_acquire);
  }
  void Beat(MonotonicTime now);
  void Invalidate();
  void Renew();
  bool valid() const { return control_ != nullptr && generation(0) != Generation::kNone; }

 private:
  const ExporterIncarnation incarnation_;
  const Duration beat_timeout_;
  std::vector<Region> regions_;
  RegionId populating_ = 0;
  uint64_t populated_ = 0;  // bytes of it
  Mapping control_mapping_;
  Descriptor control_read_only_;
  ControlPage* control_ = nullptr;
  std::atomic<uint64_t> next_generation_;
};

}  // namespace tailcast::fabric
