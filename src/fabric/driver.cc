#include "tailcast/fabric/driver.h"

#include <charconv>
#include <mutex>
#include <utility>

#include "tailcast/base/check.h"

namespace tailcast::fabric {
namespace {

struct Registered {
  std::mutex mutex;
  std::vector<std::unique_ptr<Driver>> drivers;  // guarded
};

Registered& Others() {
  static Registered others;
  return others;
}

}  // namespace

std::vector<const Driver*> Drivers() {
  std::vector<const Driver*> all = {&ShmDriver()};
  if (VerbsDriver() != nullptr) all.push_back(VerbsDriver());
  Registered& others = Others();
  std::lock_guard lock(others.mutex);
  for (const auto& driver : others.drivers) all.push_back(driver.get());
  all.push_back(&TcpDriver());
  return all;
}

const Driver* FindDriver(std::string_view scheme) {
  for (const Driver* driver : Drivers()) {
    if (driver->scheme() == scheme) return driver;
  }
  return nullptr;
}

void RegisterDriver(std::unique_ptr<Driver> driver) {
  TAILCAST_CHECK(FindDriver(driver->scheme()) == nullptr, "a scheme has one driver");
  Registered& others = Others();
  std::lock_guard lock(others.mutex);
  others.drivers.push_back(std::move(driver));
}

Result<Address> ParseAddress(const std::string& text) {
  Address address;
  const size_t colon = text.find(':');
  if (colon != std::string::npos) address.driver = FindDriver(text.substr(0, colon));
  if (address.driver == nullptr) {
    std::string schemes;
    for (const Driver* driver : Drivers()) {
      schemes.append(schemes.empty() ? "" : ", ").append(driver->scheme());
    }
    return InvalidArgumentError(
        "\"" + text +
        "\" is no fabric address: write shm:/path, verbs:host:port or tcp:host:port (this "
        "process has the schemes " +
        schemes + ")");
  }
  address.target.where = text.substr(colon + 1);
  const size_t hash = address.target.where.rfind('#');
  if (hash == std::string::npos) return address;
  const std::string digits = address.target.where.substr(hash + 1);
  uint64_t incarnation = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), incarnation, 16);
  if (digits.size() != 16 || error != std::errc() || end != digits.data() + digits.size()) {
    return InvalidArgumentError("\"" + text +
                                "\" is no fabric address: 16 hex digits belong after the '#'");
  }
  address.target.where.resize(hash);
  address.target.incarnation = ExporterIncarnation{incarnation};
  return address;
}

}  // namespace tailcast::fabric
