#include "tailcast/cell/scheduler_finder.h"

#include <string>
#include <utility>

namespace tailcast::cell {

SchedulerFinder::SchedulerFinder(CellClient& client, const Logger& log)
    : client_(client), log_(log) {
  client.SetOnContact(scope_.Bind([this](const CellClient::Contact& contact) { Say(contact); }));
}

void SchedulerFinder::LookIn(storage::Store& store) {
  registry_ = std::make_unique<RegistryReader>(store);
  client_.SetFind([this, watcher = scope_.Watch()](Callback<void(Result<std::string>)> found) {
    if (!watcher.ended()) registry_->FindScheduler(std::move(found));
  });
}

void SchedulerFinder::Say(const CellClient::Contact& contact) const {
  const std::string& cell = client_.view().cell();
  if (!contact.lost) {
    if (!client_.has_view()) return;
    log_.Warn("cell ", cell, " answers again, at ", contact.address, ", after ",
              contact.silence.millis() / 1000, " s");
  } else if (client_.has_view()) {
    log_.Warn("cell ", cell, ": its scheduler at ", contact.address,
              " does not answer: ", contact.why,
              "; going on with what is known of the cell, and looking for it");
  } else {
    log_.Warn("no scheduler answers at ", contact.address, ": ", contact.why, "; still trying");
  }
}

}  // namespace tailcast::cell
