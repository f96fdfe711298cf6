// Who comes in: how the two ends of a connection prove to each other that they belong to one cell,
// before the server shows a byte of memory and the client believes one. The same for all drivers;
// who sends the packets, and how, is their business.
//
//   client                                              server
//     hello: version, for what, whom, nonce C  ──────▶
//                                              ◀──────  challenge: incarnation, nonce S, proof
//     proof                                    ──────▶
//                                              ◀──────  welcome, or why not
//
// A proof is HMAC-SHA-256 with the cell's key over who speaks, the scheme, what the connection is
// for, the server's incarnation and both nonces: of no use on another connection, in the other
// direction, for another purpose, over another driver, or with another life of the server. Without
// a key on both ends the welcome comes at once; one that has a key deals with nobody who has none.
//
// A driver whose connection requests have no room for it (verbs: 56 bytes) begins with a tcp
// connection, which has been through it, and gets a one-time token there.
//
// What it is not: encryption. Who sits on the wire can read along, and can take over a connection
// that he let both ends make through him.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tailcast/base/status.h"
#include "tailcast/fabric/cell_key.h"
#include "tailcast/fabric/fabric.h"

namespace tailcast::fabric {

inline constexpr uint32_t kHelloVersion = 2;

// What the server says to a hello or a proof.
enum class HelloStatus : uint32_t {
  kWelcome = 0,
  kVersion = 1,      // the server speaks another version: the one in its reply
  kGoingAway = 2,    // invalidated
  kIncarnation = 3,  // another server than the one asked for
  kTooMany = 4,      // connections
  kNoMessages = 5,   // it serves no message channels
  kProve = 6,        // a challenge follows
  kNeedsKey = 7,     // it has a key, the client has none
  kWrongKey = 8,     // the client's proof is not of the server's key
  kKeyless = 9,      // the client has a key, and the server none that it could prove
};
// As the client tells it: what the server said of itself and of us.
std::string HelloStatusText(HelloStatus status);
// As the server's log tells it, of a client that was refused for what it proved or didn't; null:
// for another reason, which nobody at the server has to see to.
const char* KeyRefusalText(HelloStatus status);

// A hello's flags: what the connection is for; 0: reads.
inline constexpr uint32_t kHelloMessages = 1;  // it is a message channel (channel.h)

using Nonce = std::array<char, 32>;

// As they travel, in the host's byte order over shm, little-endian over tcp.
struct Hello {
  uint32_t version;
  uint32_t flags;
  ExporterIncarnation expected_incarnation;  // kAny is 0
  uint32_t keyed;                            // 1: the client has a key
  uint32_t reserved;
  Nonce nonce;
};
static_assert(sizeof(Hello) == 56);

struct Challenge {
  ExporterIncarnation incarnation;
  Nonce nonce;
  CellKey::Proof proof;
};
static_assert(sizeof(Challenge) == 72);

// Of one connection. No I/O; nonces are drawn by the caller (RandomBytes), each for one handshake.
class ServerHandshake {
 public:
  // `key`: null: none; it outlives the handshake, as `scheme` does.
  ServerHandshake(const CellKey* key, std::string_view scheme, ExporterIncarnation incarnation,
                  const Nonce& nonce);
  // kProve: send challenge(), and wait for the proof. kWelcome: the client may come in; the caller
  // may have other reasons to refuse. Anything else: refuse it with that. Once.
  HelloStatus OnHello(const Hello& hello);
  // kWelcome or kWrongKey. Once, after kProve.
  HelloStatus OnProof(const CellKey::Proof& proof);
  const Challenge& challenge() const { return challenge_; }
  // The hello's.
  uint32_t flags() const { return hello_.flags; }

 private:
  const CellKey* const key_;
  const std::string_view scheme_;
  Hello hello_{};
  Challenge challenge_{};
};

// Of one connection. No I/O.
class ClientHandshake {
 public:
  // As ServerHandshake's. `expected`: kAny: whoever answers.
  ClientHandshake(const CellKey* key, std::string_view scheme, uint32_t flags,
                  ExporterIncarnation expected, const Nonce& nonce);
  const Hello& hello() const { return hello_; }
  // The server proves; our own proof, to be sent.
  //   PermissionDenied: it has another key. Unavailable: it is another incarnation.
  Result<CellKey::Proof> OnChallenge(const Challenge& challenge);
  // What the server said at last. Ok: we are in, with the server that was meant.
  //   PermissionDenied: keys do not fit, or only one end has one. Unavailable: anything else.
  Status OnReply(HelloStatus status, uint32_t version, ExporterIncarnation incarnation) const;

 private:
  Status CheckIncarnation(ExporterIncarnation incarnation) const;

  const CellKey* const key_;
  const std::string_view scheme_;
  const Hello hello_;
  bool proven_ = false;                                          // the server has proven its key
  ExporterIncarnation incarnation_ = ExporterIncarnation::kAny;  // which
};

}  // namespace tailcast::fabric
