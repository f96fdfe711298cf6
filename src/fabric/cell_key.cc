#include "tailcast/fabric/cell_key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tailcast/base/check.h"
#include "tailcast/fabric/region_memory.h"

namespace tailcast::fabric {
namespace {

constexpr size_t kDigits = 2 * CellKey::kBytes;

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string Quoted(const std::string& path) { return "the cell's key file " + path; }

}  // namespace

CellKey::~CellKey() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

Result<std::shared_ptr<const CellKey>> CellKey::Load(const std::string& path) {
  const std::string what = Quoted(path);
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      return NotFoundError(what +
                           " is not there: copy it from another host of the cell, or make a "
                           "new cell's with `tailcast key FILE`");
    }
    if (error == EACCES) {
      return PermissionDeniedError(what +
                                   " can't be read by this user: let its owner run the "
                                   "process, or give it to a group that the user is in "
                                   "(mode 0640)");
    }
    return ErrnoStatus(error, "open " + what);
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + what);
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError(what + " is no file");
  if ((info.st_mode & (S_IRWXO | S_IWGRP | S_IXGRP)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return PermissionDeniedError(what + " has mode " + mode +
                                 ", so others can read or change the secret: chmod 600 " + path);
  }
  char text[kDigits + 17];
  const ssize_t n = read(fd.get(), text, sizeof text);
  if (n < 0) return ErrnoStatus(errno, "read " + what);
  auto size = static_cast<size_t>(n);
  while (size > 0 && std::strchr(" \t\r\n", text[size - 1]) != nullptr) --size;
  std::array<unsigned char, kBytes> secret{};
  bool good = size == kDigits;
  for (size_t i = 0; good && i < kBytes; ++i) {
    const int high = DigitValue(text[2 * i]), low = DigitValue(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    secret[i] = static_cast<unsigned char>(high << 4 | (low & 15));
  }
  OPENSSL_cleanse(text, sizeof text);
  if (!good) {
    return InvalidArgumentError(what + " holds no key: it must be " + std::to_string(kDigits) +
                                " hex digits, as `tailcast key FILE` writes them");
  }
  auto key = std::make_shared<const CellKey>(secret);
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

Status CellKey::Make(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0) return OkStatus();
  const std::string part = path + ".part";
  std::string digits;
  for (const char c : RandomBytes()) {
    constexpr char kHex[] = "0123456789abcdef";
    digits += kHex[static_cast<unsigned char>(c) >> 4];
    digits += kHex[c & 15];
  }
  digits += '\n';
  unlink(part.c_str());  // of one that died half-way
  const Descriptor fd(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "make " + part);
  const bool written =
      fchmod(fd.get(), 0600) == 0 &&
      write(fd.get(), digits.data(), digits.size()) == static_cast<ssize_t>(digits.size()) &&
      fsync(fd.get()) == 0;
  OPENSSL_cleanse(digits.data(), digits.size());
  if (!written) return ErrnoStatus(errno, "write " + part);
  // Not a rename: whoever came first keeps his.
  const int linked = link(part.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(part.c_str());
  if (linked == EEXIST) return OkStatus();
  if (linked != 0) return ErrnoStatus(linked, "make " + Quoted(path));
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid() || fsync(directory.get()) != 0)
    return ErrnoStatus(errno, "sync " + folder);
  return OkStatus();
}

CellKey::Proof CellKey::Sign(std::string_view text) const {
  Proof proof{};
  unsigned length = 0;
  const unsigned char* const done =
      HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &length);
  TAILCAST_CHECK(done != nullptr && length == proof.size(), "HMAC-SHA-256 failed");
  return proof;
}

bool CellKey::Same(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<SharedCellKey> LoadCellKey(const std::string& path_or_none) {
  if (path_or_none == kNoCellKey) return SharedCellKey();
  return CellKey::Load(path_or_none);
}

std::array<char, 32> RandomBytes() {
  std::array<char, 32> bytes{};
  // So few come whole and, once the host has booted, at once.
  TAILCAST_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return bytes;
}

}  // namespace tailcast::fabric
