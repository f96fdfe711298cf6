#include "tailcast/fabric/region_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace tailcast::fabric {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPopulateBytes = 1 << 20;
// Linux 5.14; not in every header.
constexpr int kPopulateRead = 22, kPopulateWrite = 23;

uint64_t RoundUpToPage(uint64_t size) { return (size + kPageBytes - 1) & ~(kPageBytes - 1); }

struct SealedMemory {
  Mapping writable;
  Descriptor read_only;
};

// A zeroed memfd of `size` bytes (a multiple of the page size).
Result<SealedMemory> MakeSealedMemory(const char* name, uint64_t size) {
  Descriptor fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  const std::string what = "a shared memory region of " + std::to_string(size) + " bytes";
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return ErrnoStatus(errno, what);
  // Taken now: a host without the memory says so here, and not by a SIGBUS in the middle of a
  // stream.
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(size)) != 0) return ErrnoStatus(errno, what);
  Result<Mapping> writable = Mapping::Map(fd.get(), size, true);
  if (!writable.ok()) return writable.status();
  // Also against a reader of our own user who opens /proc/<pid>/fd/<n> anew.
  if (fchmod(fd.get(), S_IRUSR | S_IRGRP | S_IROTH) != 0) return ErrnoStatus(errno, what);
  if (fcntl(fd.get(), F_ADD_SEALS,
            F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "seal " + what + " (needs Linux 5.1)");
  }
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  Descriptor read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.valid()) return ErrnoStatus(errno, "open " + path + " (is /proc mounted?)");
  return SealedMemory{std::move(writable).value(), std::move(read_only)};
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}
void Mapping::DropFront(uint64_t bytes) {
  const uint64_t drop = std::min(bytes, size_);
  if (drop == 0) return;
  munmap(data_, drop);
  size_ -= drop;
  data_ = size_ > 0 ? data_ + drop : nullptr;
}
Result<Mapping> Mapping::Map(int fd, uint64_t size, bool writable) {
  void* p = mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) {
    return ErrnoStatus(errno, "map " + std::to_string(size) + " bytes of shared memory");
  }
  return Mapping(static_cast<char*>(p), size);
}

Result<Mapping> Mapping::ForDevice(uint64_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, "map " + std::to_string(size) + " bytes");
  madvise(p, size, MADV_DONTFORK);
  return Mapping(static_cast<char*>(p), size);
}

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

RegionMemory::RegionMemory(ExporterIncarnation incarnation, Duration beat_timeout) noexcept
    : incarnation_(incarnation),
      beat_timeout_(beat_timeout),
      next_generation_(static_cast<uint64_t>(incarnation) | 1) {}

Result<std::span<char>> RegionMemory::Add(RegionId id, uint64_t size) {
  const std::string what = "region " + std::to_string(id);
  if (control_ != nullptr) {
    return FailedPreconditionError(what + " is added after Listen: readers know the others only");
  }
  if (id >= kRegionsMax) {
    return InvalidArgumentError(what + ": numbers go up to " + std::to_string(kRegionsMax - 1));
  }
  if (size == 0 || size % 8 != 0) {
    return InvalidArgumentError(what + ": its size of " + std::to_string(size) +
                                " bytes is no positive multiple of 8");
  }
  if (id < regions_.size() && regions_[id].size != 0) {
    return InvalidArgumentError(what + " exists already");
  }
  Result<SealedMemory> memory = MakeSealedMemory("tailcast-region", RoundUpToPage(size));
  if (!memory.ok()) return memory.status().WithContext(what);
  Result<Mapping> readable = Mapping::Map(memory->read_only.get(), RoundUpToPage(size), false);
  if (!readable.ok()) return readable.status().WithContext(what);
  if (id >= regions_.size()) regions_.resize(id + 1);
  Region& region = regions_[id];
  region.size = size;
  region.writable = std::move(memory->writable);
  region.readable = std::move(readable).value();
  region.read_only = std::move(memory->read_only);
  return std::span<char>(region.writable.data(), size);
}

Status RegionMemory::Seal() {
  if (regions_.empty()) return InvalidArgumentError("an exporter needs a region");
  for (size_t id = 0; id < regions_.size(); ++id) {
    if (regions_[id].size == 0) {
      return InvalidArgumentError("region " + std::to_string(id) +
                                  " is missing: regions are numbered without holes");
    }
  }
  Result<SealedMemory> memory = MakeSealedMemory("tailcast-control", kControlBytes);
  if (!memory.ok()) return memory.status().WithContext("the control page");
  control_mapping_ = std::move(memory->writable);
  control_read_only_ = std::move(memory->read_only);
  control_ = new (control_mapping_.data()) ControlPage{};
  control_->magic = kControlMagic;
  control_->version = kControlVersion;
  control_->region_count = static_cast<uint32_t>(regions_.size());
  control_->incarnation = incarnation_;
  control_->beat_timeout_us = static_cast<uint64_t>(beat_timeout_.micros());
  Renew();
  return OkStatus();
}

bool RegionMemory::PopulateNext() {
  if (populating_ == regions_.size()) return false;
  const Region& region = regions_[populating_];
  const uint64_t bytes = std::min(kPopulateBytes, region.writable.size() - populated_);
  if (madvise(region.writable.data() + populated_, bytes, kPopulateWrite) != 0 ||
      madvise(region.readable.data() + populated_, bytes, kPopulateRead) != 0) {
    populating_ =
        static_cast<RegionId>(regions_.size());  // an old kernel: as they are needed, then
    return false;
  }
  populated_ += bytes;
  if (populated_ == region.writable.size()) {
    ++populating_;
    populated_ = 0;
  }
  return true;
}

void RegionMemory::Beat(MonotonicTime now) {
  if (control_ == nullptr) return;
  control_->heartbeat_us.store(static_cast<uint64_t>(now.micros()), std::memory_order_relaxed);
}

void RegionMemory::Invalidate() {
  if (control_ == nullptr) return;
  for (size_t id = 0; id < regions_.size(); ++id) {
    control_->generations[id].store(Generation::kNone, std::memory_order_relaxed);
  }
  // Before every byte that the owner writes from now on: a reader that copies such a byte finds the
  // generation gone when it looks after its copy.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void RegionMemory::Renew() {
  if (control_ == nullptr) return;
  for (size_t id = 0; id < regions_.size(); ++id) {
    uint64_t generation = 0;
    while (generation == 0) generation = next_generation_.fetch_add(1, std::memory_order_relaxed);
    control_->generations[id].store(Generation{generation}, std::memory_order_release);
  }
}

}  // namespace tailcast::fabric
