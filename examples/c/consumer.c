/* Prints COUNT messages, and where to go on: c_consumer SCHEDULER_ADDRESS STREAM COUNT [POSITION...] */
#include <stdio.h>
#include <stdlib.h>
#include <tailcast/capi/tailcast.h>

static int fail(void) {
  fprintf(stderr, "%s\n", tailcast_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: c_consumer HOST:PORT STREAM COUNT [POSITION...]\n");
    return 2;
  }
  enum { RESUME_MAX = 64 };
  tailcast_position resume[RESUME_MAX];
  tailcast_consumer_options options = TAILCAST_CONSUMER_OPTIONS_INIT;
  options.cell = argv[1];
  options.stream = argv[2];
  options.resume = resume;
  for (int i = 4; i < argc && options.resume_count < RESUME_MAX; ++i) {
    if (tailcast_position_from_text(argv[i], &resume[options.resume_count++]) != TAILCAST_OK) {
      return fail();
    }
  }
  tailcast_consumer* consumer;
  if (tailcast_consumer_open(&options, &consumer) != TAILCAST_OK) return fail();
  for (long left = atol(argv[3]); left > 0;) {
    const tailcast_message* messages;
    size_t count;
    if (tailcast_consumer_poll(consumer, 10000, &messages, &count) != TAILCAST_OK) return fail();
    if (count == 0) {
      fprintf(stderr, "nothing came for 10 seconds\n");
      return 1;
    }
    for (size_t i = 0; i < count; ++i, --left) {
      fwrite(messages[i].payload, 1, messages[i].size, stdout);
      for (size_t h = 0; left == 1 && h < messages[i].header_count; ++h) {
        const tailcast_header* header = &messages[i].headers[h];
        fprintf(stderr, "the last one has %.*s=%.*s\n", (int)header->name_size, header->name,
                (int)header->value_size, (const char*)header->value);
      }
    }
  }
  int32_t shards[RESUME_MAX];
  size_t count = tailcast_consumer_shards(consumer, shards, RESUME_MAX);
  for (size_t i = 0; i < count && i < RESUME_MAX; ++i) {
    tailcast_position position;
    char text[TAILCAST_POSITION_TEXT_SIZE];
    if (tailcast_consumer_position(consumer, shards[i], &position) != TAILCAST_OK) continue;
    if (tailcast_position_to_text(&position, text) != TAILCAST_OK) return fail();
    fprintf(stderr, "%s\n", text);
  }
  tailcast_consumer_free(consumer);
  return 0;
}
