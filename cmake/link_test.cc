// The program of every module's link test: the module's whole archive with what it declares
// (TailcastModule.cmake). That it links is the test.
int main() { return 0; }
