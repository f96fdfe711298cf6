#include "tailcast/base/resident_memory.h"

#include <fstream>
#include <string>

namespace tailcast {

ResidentMemory ReadResidentMemory() {
  std::ifstream in("/proc/self/status");
  ResidentMemory memory;
  for (std::string name; in >> name;) {
    int64_t kilobytes = 0;
    if (name != "RssAnon:" && name != "RssShmem:") continue;
    in >> kilobytes;
    (name == "RssAnon:" ? memory.own : memory.shared) = kilobytes << 10;
  }
  return memory;
}

}  // namespace tailcast
