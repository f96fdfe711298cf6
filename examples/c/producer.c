/* Publishes a price update a line: c_producer SCHEDULER_ADDRESS STREAM COUNT */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tailcast/capi/tailcast.h>

static atomic_int durable;

static void count_durable(void* context, const tailcast_ack* ack) {
  (void)context;
  if (ack->outcome == TAILCAST_DURABLE) {
    ++durable;
  } else {
    fprintf(stderr, "%s: %s\n", tailcast_code_name(ack->code), ack->error);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: c_producer HOST:PORT STREAM COUNT\n");
    return 2;
  }
  tailcast_producer_options options = TAILCAST_PRODUCER_OPTIONS_INIT;
  options.cell = argv[1];
  options.stream = argv[2];
  options.profile = TAILCAST_PROFILE_LOW_LATENCY;
  tailcast_producer* producer;
  if (tailcast_producer_open(&options, &producer) != TAILCAST_OK) {
    fprintf(stderr, "%s\n", tailcast_last_error());
    return 1;
  }
  const int count = atoi(argv[3]);
  int published = 0;
  for (; published < count; ++published) {
    char key[32], update[64];
    const int key_size = snprintf(key, sizeof key, "item-%d", published % 100);
    const int size = snprintf(update, sizeof update, "%s %d\n", key, published);
    const tailcast_header trace = {"producer", 8, "example", 7}; /* for who looks at them */
    /* Updates of an item come in order: they go to one shard. */
    const int32_t shard = tailcast_producer_shard_of(producer, key, (size_t)key_size);
    if (tailcast_producer_publish(producer, shard, update, (size_t)size, &trace, 1, count_durable,
                                  NULL) !=
        TAILCAST_OK) {
      fprintf(stderr, "%s\n", tailcast_last_error());
      break;
    }
  }
  const tailcast_code closed = tailcast_producer_close(producer, 30000);
  if (closed != TAILCAST_OK) fprintf(stderr, "%s\n", tailcast_last_error());
  tailcast_producer_free(producer); /* no callback runs any more */
  printf("%d of %d durable\n", durable, count);
  return closed == TAILCAST_OK && durable == count ? 0 : 1;
}
