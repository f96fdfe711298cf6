#include <algorithm>

#include "tailcast/base/log.h"
#include "tailcast/stream/index_record.h"
#include "tailcast/writer/operation.h"

namespace tailcast::writer {
namespace {
const Logger kLog("writer");
}

using stream::PairMetadata;
using stream::Part;

// Bytes of both parts in order -> appends to the pair -> primary lengths in the metadata cache.
class PrimaryOperation : public WriterOperation {
 public:
  using WriterOperation::WriterOperation;

 protected:
  void OnStart() override {
    // A new file is opened at once. One that may be there already waits for the first look at its
    // lock, so that an operation that was superseded long ago does not fence its successor.
    if (operation_.fresh) Open();
  }

  void OnLockChanged() override {
    if (!opening_) Open();
    Kick();
  }

  Status OnBytes(Part part, int64_t position, const std::string& bytes) override {
    if (core_ != nullptr) return core_->OnBytes(part, position, bytes);
    if (!operation_.fresh) return InvalidArgumentError("bytes before `opened` of a known file");
    early_bytes_ += static_cast<int64_t>(bytes.size());
    if (early_bytes_ > agent_->options_.primary.window_bytes) {
      return ResourceExhaustedError(Name() + ": more than the window was sent before `opened`");
    }
    early_.push_back({part, position, bytes});
    return OkStatus();
  }

  Status OnJump(Part, int64_t) override {
    return InvalidArgumentError("jump in a primary operation: its bytes come in order");
  }

  Status OnSealKnown() override {
    return core_ == nullptr ? OkStatus() : core_->OnSeal(*seal_[0], *seal_[1]);
  }

  int64_t written(Part part) const override {
    return core_ == nullptr ? 0 : core_->committed(part);
  }

  int outstanding() const override { return appends_; }
  bool busy() const override { return appends_ > 0; }

  void Work() override {
    if (core_ == nullptr || fenced_) return;
    for (Part part : {Part::kData, Part::kIndex}) {
      auto append = core_->NextAppend(part);
      if (!append.ok()) {
        agent_->counters_.rejected_input.Add();
        kLog.Error(Name(), ": ", append.status().ToString());
        End(append.status().WithContext(Name()));
        return;
      }
      if (*append) Append(part, std::move(**append));
    }
    if (core_->done()) Finish();
  }

 private:
  struct Early {
    Part part;
    int64_t position;
    std::string bytes;
  };

  void Open() {
    opening_ = true;
    agent_->WithFloor(file().shard, [self = weak_from_this(), this](Result<int64_t> floor) {
      const auto op = self.lock();
      if (!op || ended_) return;
      if (!floor.ok()) return End(floor.status().WithContext(Name()));
      if (file().stem.seq < *floor) {
        agent_->counters_.below_floor.Add();
        return End(OutOfRangeError(Name() + ": below the retention floor of this cell, file " +
                                   std::to_string(*floor)));
      }
      OpenPart(Part::kData, operation_.fresh);
    });
  }

  // Creates or takes over one file of the pair, data first: the index file commits the pair.
  void OpenPart(Part part, bool create) {
    const std::string dir = stream::ShardDir(file().shard);
    const std::string name = stream::FileName(file().stem, part);
    auto done = [self = weak_from_this(), this, part, create,
                 name](Result<std::unique_ptr<storage::AppendFile>> opened) {
      const auto op = self.lock();
      if (!op || ended_) return;
      OnOpened(part, create, name, std::move(opened));
    };
    if (create) {
      agent_->ports_.store->CreateExclusive(dir, name, stream::CreationKey(file().stem.seq, part),
                                            std::move(done));
    } else {
      agent_->ports_.store->OpenFencing(dir, name, std::move(done));
    }
  }

  void OnOpened(Part part, bool create, const std::string& name,
                Result<std::unique_ptr<storage::AppendFile>> opened) {
    if (!opened.ok()) {
      const Status& status = opened.status();
      if (agent_->options_.bug == WriterBug::kNeverTakesOver) return End(status);
      if (create && IsAlreadyExists(status)) {
        if (storage::WinnerOf(status) == name) return OpenPart(part, false);
        kLog.Error(Name(), ": this cell has another file under the same number: ",
                   storage::WinnerOf(status));
        return End(DataLossError(Name() + ": " + name + " cannot be created: the cell has " +
                                 storage::WinnerOf(status) + " under the same sequence number"));
      }
      if (!create && IsNotFound(status) && attempts_++ < 3) return OpenPart(part, true);
      return End(status.WithContext(Name()));
    }
    files_[static_cast<int>(part)] = std::move(*opened);
    if (!create) agent_->counters_.takeovers.Add();
    if (part == Part::kData) return OpenPart(Part::kIndex, create);
    OnBothOpen();
  }

  void OnBothOpen() {
    const int64_t data = files_[0]->committed_length();
    const int64_t index = files_[1]->committed_length();
    if (index % stream::kIndexRecordSize != 0) {
      return End(DataLossError(Name() + ": its index is committed up to " + std::to_string(index) +
                               ", inside a record"));
    }
    core_ = std::make_unique<PrimaryCopyCore>(agent_->options_.primary, data, index);
    SendOpened(data, index, files_[0]->epoch(), agent_->options_.primary.window_bytes / 2);
    agent_->Notify(file(), seal_);
    PublishLengths();
    Status status = seal_[0] ? core_->OnSeal(*seal_[0], *seal_[1]) : OkStatus();
    for (Early& e : early_) {
      if (status.ok()) status = core_->OnBytes(e.part, e.position, e.bytes);
    }
    early_.clear();
    if (!status.ok()) {
      agent_->counters_.rejected_input.Add();
      return End(status.WithContext(Name()));
    }
    Kick();
  }

  void Append(Part part, PrimaryCopyCore::Append append) {
    const int64_t size = static_cast<int64_t>(append.bytes.size());
    ++appends_;
    if (agent_->options_.bug == WriterBug::kPublishesBeforeFlush) {
      PairMetadata early;
      early.primary_length[static_cast<int>(part)] = append.offset + size;
      Publish(early);
    }
    files_[static_cast<int>(part)]->AppendAt(
        append.offset, std::move(append.bytes),
        [self = weak_from_this(), this, part, size](storage::AppendResult result) {
          const auto op = self.lock();
          if (!op) return;
          --appends_;
          if (ended_) return OnIdle();
          OnAppended(part, size, result);
        });
  }

  void OnAppended(Part part, int64_t size, const storage::AppendResult& result) {
    switch (result.outcome) {
      case storage::AppendOutcome::kApplied:
        core_->OnApplied(part);
        agent_->counters_.bytes_primary.Add(size);
        PublishLengths();
        Kick();
        return;
      case storage::AppendOutcome::kFenced:
        agent_->counters_.fenced.Add();
        return OnFenced();
      case storage::AppendOutcome::kWrongOffset:
      case storage::AppendOutcome::kUnknown:
        agent_->counters_.append_unknown.Add();
        kLog.Warn(Name(), ": append at ", core_->committed(part), ": ", result.error.ToString());
        // A successor opens the file anew and finds out what is committed.
        End(UnavailableError(Name() + ": append at " + std::to_string(core_->committed(part)) +
                             ": " + result.error.ToString()));
        return;
    }
  }

  // Says who fenced us, if the lock tells: the scheduler then knows whether to try again.
  void OnFenced() {
    if (fenced_) return;
    fenced_ = true;
    agent_->ports_.metadata_cache->ReadValues(
        {{LockKey(), cache::MergeRule::kMaxBytes}}, agent_->options_.cache_timeout,
        [self = weak_from_this(), this](Result<std::vector<std::optional<std::string>>> values) {
          const auto op = self.lock();
          if (!op || ended_) return;
          if (values.ok() && (*values)[0]) {
            lock_.OnRead(agent_->ports_.loop->Now(), stream::DecodeLock(*(*values)[0]));
          }
          EndSuperseded("another writer fenced the file");
        });
  }

  void PublishLengths() {
    PairMetadata metadata;
    metadata.primary_epoch = static_cast<int64_t>(files_[0]->epoch());
    for (int p = 0; p < stream::kParts; ++p) {
      metadata.primary_length[p] = core_->committed(static_cast<Part>(p));
    }
    Publish(metadata);
  }

  bool opening_ = false;
  int appends_ = 0;  // outstanding
  int attempts_ = 0;
  bool fenced_ = false;
  std::unique_ptr<storage::AppendFile> files_[stream::kParts];
  std::unique_ptr<PrimaryCopyCore> core_;  // once both are open
  std::vector<Early> early_;               // bytes that came before
  int64_t early_bytes_ = 0;
};

std::shared_ptr<WriterOperation> MakePrimaryOperation(WriterAgent& agent, uint64_t id,
                                                      std::unique_ptr<rpc::Stream> stream,
                                                      stream::Operation operation) {
  return std::make_shared<PrimaryOperation>(agent, id, std::move(stream), std::move(operation));
}

}  // namespace tailcast::writer
