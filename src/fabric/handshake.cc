#include "tailcast/fabric/handshake.h"

#include <cstring>
#include <type_traits>

namespace tailcast::fabric {
namespace {

enum class Speaker : uint8_t { kServer = 1, kClient = 2 };

// What a proof is over. Every part has a fixed size, or its size before it.
CellKey::Proof ProofOf(const CellKey& key, Speaker speaker, std::string_view scheme,
                       const Hello& hello, ExporterIncarnation incarnation, const Nonce& server) {
  std::string text = "tailcast fabric handshake 2";
  const auto append = [&text](const auto& value) {
    static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<decltype(value)>>);
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  append(speaker);
  append(static_cast<uint32_t>(scheme.size()));
  text.append(scheme);
  append(hello.version);
  append(hello.flags);
  append(incarnation);
  append(hello.nonce);
  append(server);
  return key.Sign(text);
}

}  // namespace

std::string HelloStatusText(HelloStatus status) {
  switch (status) {
    case HelloStatus::kWelcome:
      return "welcome";
    case HelloStatus::kVersion:
      return "it speaks another version of the protocol";
    case HelloStatus::kGoingAway:
      return "it is going away (its memory was invalidated)";
    case HelloStatus::kIncarnation:
      return "another server than the one asked for listens there";
    case HelloStatus::kTooMany:
      return "it has as many connections as it takes";
    case HelloStatus::kNoMessages:
      return "it takes no messages";
    case HelloStatus::kProve:
      return "it asks for a proof a second time";
    case HelloStatus::kNeedsKey:
      return "it lets in who proves the cell's key, and this process has none: give it the key "
             "file of the server's cell (cell_key)";
    case HelloStatus::kWrongKey:
      return "the key of this process is not the one of the server's cell: give it that cell's "
             "key file (cell_key)";
    case HelloStatus::kKeyless:
      return "it has no key to prove, and this process has one: is it of this cell, with the same "
             "cell_key in its configuration?";
  }
  return "it refused for a reason unknown to this version";
}

const char* KeyRefusalText(HelloStatus status) {
  switch (status) {
    case HelloStatus::kNeedsKey:
      return "it has no key (cell_key, or TAILCAST_CELL_KEY where it runs)";
    case HelloStatus::kWrongKey:
      return "its key is not this cell's (cell_key, or TAILCAST_CELL_KEY where it runs)";
    case HelloStatus::kKeyless:
      return "it wants a proof of the cell's key, and this process was given none (cell_key)";
    default:
      return nullptr;
  }
}

ServerHandshake::ServerHandshake(const CellKey* key, std::string_view scheme,
                                 ExporterIncarnation incarnation, const Nonce& nonce)
    : key_(key), scheme_(scheme) {
  challenge_.incarnation = incarnation;
  challenge_.nonce = nonce;
}

HelloStatus ServerHandshake::OnHello(const Hello& hello) {
  hello_ = hello;
  if (hello.version != kHelloVersion || (hello.flags & ~kHelloMessages) != 0 || hello.keyed > 1) {
    return HelloStatus::kVersion;
  }
  if (hello.expected_incarnation != ExporterIncarnation::kAny &&
      hello.expected_incarnation != challenge_.incarnation) {
    return HelloStatus::kIncarnation;
  }
  if (key_ == nullptr) return hello.keyed == 0 ? HelloStatus::kWelcome : HelloStatus::kKeyless;
  if (hello.keyed == 0) return HelloStatus::kNeedsKey;
  challenge_.proof =
      ProofOf(*key_, Speaker::kServer, scheme_, hello_, challenge_.incarnation, challenge_.nonce);
  return HelloStatus::kProve;
}

HelloStatus ServerHandshake::OnProof(const CellKey::Proof& proof) {
  const CellKey::Proof wanted =
      ProofOf(*key_, Speaker::kClient, scheme_, hello_, challenge_.incarnation, challenge_.nonce);
  return CellKey::Same(proof, wanted) ? HelloStatus::kWelcome : HelloStatus::kWrongKey;
}

ClientHandshake::ClientHandshake(const CellKey* key, std::string_view scheme, uint32_t flags,
                                 ExporterIncarnation expected, const Nonce& nonce)
    : key_(key),
      scheme_(scheme),
      hello_{.version = kHelloVersion,
             .flags = flags,
             .expected_incarnation = expected,
             .keyed = key != nullptr ? 1u : 0u,
             .reserved = 0,
             .nonce = nonce} {}

Status ClientHandshake::CheckIncarnation(ExporterIncarnation incarnation) const {
  if (hello_.expected_incarnation == ExporterIncarnation::kAny ||
      hello_.expected_incarnation == incarnation) {
    return OkStatus();
  }
  return UnavailableError(HelloStatusText(HelloStatus::kIncarnation));
}

Result<CellKey::Proof> ClientHandshake::OnChallenge(const Challenge& challenge) {
  if (key_ == nullptr || proven_) return UnavailableError("it asks for a proof out of turn");
  TAILCAST_RETURN_IF_ERROR(CheckIncarnation(challenge.incarnation));
  const CellKey::Proof wanted =
      ProofOf(*key_, Speaker::kServer, scheme_, hello_, challenge.incarnation, challenge.nonce);
  if (!CellKey::Same(challenge.proof, wanted)) {
    return PermissionDeniedError(
        "it proves another key than the one of this process: it is of another cell, or the key "
        "files differ");
  }
  proven_ = true;
  incarnation_ = challenge.incarnation;
  return ProofOf(*key_, Speaker::kClient, scheme_, hello_, challenge.incarnation, challenge.nonce);
}

Status ClientHandshake::OnReply(HelloStatus status, uint32_t version,
                                ExporterIncarnation incarnation) const {
  if (status == HelloStatus::kNeedsKey || status == HelloStatus::kWrongKey ||
      status == HelloStatus::kKeyless) {
    return PermissionDeniedError("refused: " + HelloStatusText(status));
  }
  if (status != HelloStatus::kWelcome) {
    return UnavailableError("refused: " + HelloStatusText(status));
  }
  if (version != kHelloVersion) {
    return UnavailableError("sent a reply of version " + std::to_string(version));
  }
  if (key_ != nullptr && !proven_) {
    return PermissionDeniedError("let us in without a proof of its own: " +
                                 HelloStatusText(HelloStatus::kKeyless));
  }
  TAILCAST_RETURN_IF_ERROR(CheckIncarnation(incarnation));
  if (proven_ && incarnation != incarnation_) {
    return UnavailableError("is another one than has proven the key");
  }
  return OkStatus();
}

}  // namespace tailcast::fabric
