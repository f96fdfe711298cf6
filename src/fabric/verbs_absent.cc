// Instead of the verbs driver, where it is not built.
#include "tailcast/fabric/driver.h"

namespace tailcast::fabric {

const Driver* VerbsDriver() { return nullptr; }

}  // namespace tailcast::fabric
