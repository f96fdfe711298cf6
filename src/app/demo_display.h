// What `tailcast demo` prints: a table that is drawn again and again on a terminal, lines now and
// then elsewhere, or JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tailcast/app/demo_stream.h"
#include "tailcast/app/demo_table.h"
#include "tailcast/base/time.h"

namespace tailcast::app {

class DemoDisplay {
 public:
  DemoDisplay(bool json, bool terminal) : json_(json), terminal_(terminal) {}

  // A line that stays above the table.
  void Say(const std::string& text);
  // How the consumers are now; at the end, `last`, over the whole run.
  void Show(const Publisher& publisher, Watchers& watchers, int64_t total, bool last);

 private:
  void Draw(const std::vector<DemoRow>& rows, const DemoProgress& progress, bool last);
  void Print(const std::vector<DemoRow>& rows, const DemoProgress& progress, bool last);

  const bool json_, terminal_;
  size_t lines_ = 0;  // of the table that is shown
  MonotonicTime printed_;
};

}  // namespace tailcast::app
