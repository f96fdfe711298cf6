// Who has connected and has not been let in yet. A server gives them little: a place in a list of
// bounded length, and a few seconds. When it is full, the one who has waited longest goes, of the
// host that has the most: so a flood drives out itself first, and then whoever takes longer for his
// hello than a whole list of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace tailcast::fabric {

// A core: no clock and no sockets in it.
class GuestList {
 public:
  explicit GuestList(size_t guests_max) : guests_max_(guests_max) {}

  // `guest` (a number that nobody on the list has) came from `host`. Who has to go for it, if
  // anybody; he is not on the list any more.
  std::optional<int> Add(int guest, const std::string& host) {
    std::optional<int> sent_away;
    if (guests_.size() >= guests_max_) {
      const auto* most = &hosts_.begin()->second;
      for (const auto& [name, waiting] : hosts_) {
        if (waiting.size() > most->size()) most = &waiting;
      }
      sent_away = most->front();
      Remove(*sent_away);
    }
    std::list<int>& waiting = hosts_[host];
    guests_[guest] = {host, waiting.insert(waiting.end(), guest)};
    return sent_away;
  }
  // Let in, or gone; one that is not on the list is ignored.
  void Remove(int guest) {
    const auto it = guests_.find(guest);
    if (it == guests_.end()) return;
    const auto host = hosts_.find(it->second.host);
    host->second.erase(it->second.place);
    if (host->second.empty()) hosts_.erase(host);
    guests_.erase(it);
  }
  size_t size() const { return guests_.size(); }

 private:
  struct Guest {
    std::string host;
    std::list<int>::iterator place;
  };
  const size_t guests_max_;
  std::map<std::string, std::list<int>> hosts_;  // of each, the longest waiting first
  std::unordered_map<int, Guest> guests_;
};

}  // namespace tailcast::fabric
