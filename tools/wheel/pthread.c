/* A stand-in for the libpthread.so.0 of a glibc before 2.34, for the linker only: it gives the two functions that the
 * library calls the version that every glibc has (pthread.map.in). Newer glibcs have them in libc.so.6 under a version of
 * 2.34 and keep the old one for such programs, so the wheel runs on both. Nothing of this file is in the wheel. */
void pthread_create(void) {}
void pthread_join(void) {}
