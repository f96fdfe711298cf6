#include "tailcast/fabric/verbs_wire.h"

#include <cstdio>
#include <cstring>

#include "tailcast/fabric/verbs_offers.h"

namespace tailcast::fabric {
namespace {

constexpr uint64_t kHourMicros = 3'600'000'000;

}  // namespace

std::optional<VerbsHello> DecodeVerbsHello(std::string_view private_data) {
  VerbsHello hello;
  if (private_data.size() < sizeof(hello)) return std::nullopt;
  std::memcpy(&hello, private_data.data(), sizeof(hello));
  if (hello.magic != kVerbsMagic) return std::nullopt;
  return hello;
}

std::string EncodeVerbsOffer(const VerbsOffer& offer) {
  std::string body(reinterpret_cast<const char*>(&offer.head), sizeof(offer.head));
  body.append(reinterpret_cast<const char*>(offer.regions.data()),
              offer.regions.size() * sizeof(VerbsKey));
  return body;
}

std::optional<VerbsOffer> DecodeVerbsOffer(std::string_view body, size_t regions) {
  VerbsOffer offer;
  if (body.size() != sizeof(offer.head) + regions * sizeof(VerbsKey)) return std::nullopt;
  std::memcpy(&offer.head, body.data(), sizeof(offer.head));
  offer.regions.resize(regions);
  body.remove_prefix(sizeof(offer.head));
  // An empty vector has no place to copy nothing to.
  if (!body.empty()) std::memcpy(offer.regions.data(), body.data(), body.size());
  const VerbsOfferHead& head = offer.head;
  if (head.host[sizeof(head.host) - 1] != '\0') return std::nullopt;
  if (head.version == kVerbsVersion && regions == 0) return offer;
  if (head.version != kVerbsVersion || head.port == 0 || head.port > 0xffff ||
      head.reads_max == 0 || head.beat_timeout_us > kHourMicros || head.stall_timeout_us < 1000 ||
      head.stall_timeout_us > kHourMicros) {
    return std::nullopt;
  }
  return offer;
}

std::string EncodeVerbsChannelOffer(const VerbsChannelOffer& offer) {
  return {reinterpret_cast<const char*>(&offer), sizeof(offer)};
}

std::optional<VerbsChannelOffer> DecodeVerbsChannelOffer(std::string_view body, size_t count) {
  VerbsChannelOffer offer;
  if (body.size() != sizeof(offer) || count > 1) return std::nullopt;
  std::memcpy(&offer, body.data(), sizeof(offer));
  if (offer.host[sizeof(offer.host) - 1] != '\0' || offer.version != kVerbsVersion) {
    return std::nullopt;
  }
  if (count == 1 && (offer.port == 0 || offer.port > 0xffff || offer.stall_timeout_us < 1000 ||
                     offer.stall_timeout_us > kHourMicros)) {
    return std::nullopt;
  }
  return offer;
}

VerbsOffers::Made VerbsChannelOffers::None(const std::string& why) {
  VerbsChannelOffer offer{};
  offer.version = kVerbsVersion;
  std::snprintf(offer.host, sizeof(offer.host), "%s", why.c_str());
  return {.body = EncodeVerbsChannelOffer(offer), .regions = 0, .ticket = 0};
}

VerbsOffers::Made VerbsOffers::None(const std::string& why) {
  VerbsOffer offer;
  offer.head.version = kVerbsVersion;
  std::snprintf(offer.head.host, sizeof(offer.head.host), "%s", why.c_str());
  return {.body = EncodeVerbsOffer(offer), .regions = 0, .ticket = 0};
}

}  // namespace tailcast::fabric
