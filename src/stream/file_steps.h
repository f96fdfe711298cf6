// The steps of one writer or consumer on one message file, for the log that tla/README.md describes
// (base/step_log.h). Without a log nothing happens.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "tailcast/base/step_log.h"
#include "tailcast/stream/names.h"

namespace tailcast::stream {

class FileSteps {
 public:
  FileSteps() = default;
  // `role` is "writer" or "consumer", `who` one of the log's names. The log outlives this.
  FileSteps(StepLog* log, const FileId& file, std::string_view role, const std::string& who)
      : log_(log) {
    if (log == nullptr) return;
    const std::string name = ShardDir(file.shard) + "/" + file.stem.ToString();
    AppendStepFields({{"file", std::string_view(name)}, {role, std::string_view(who)}}, &about_);
  }

  // Ask before anything is computed for a step.
  bool on() const { return log_ != nullptr; }
  void Write(std::string_view event, Part part, std::initializer_list<StepField> fields) const {
    if (log_ == nullptr) return;
    std::string more = about_;
    AppendStepFields({{"part", static_cast<int>(part)}}, &more);
    log_->WriteAt(log_->Stamp(), event, fields, more);
  }
  // Of the pair.
  void Write(std::string_view event, std::initializer_list<StepField> fields) const {
    if (log_ != nullptr) log_->WriteAt(log_->Stamp(), event, fields, about_);
  }

 private:
  StepLog* log_ = nullptr;
  std::string about_;  // the inside of a JSON object
};

}  // namespace tailcast::stream
