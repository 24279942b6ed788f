#!/bin/bash
# Loads small documents, and opens the store at several sizes. open.sh OUT
OUT=$1; D=/tmp/opendb; B=./frond; rm -rf $D; mkdir -p $D
start() { # binary
  $1 serve --dbpath $D --port 27300 --cacheSizeGB 16 --logpath $D.log --logappend >/dev/null & PID=$!
  t0=$(date +%s.%N)
  for i in $(seq 6000); do (echo > /dev/tcp/127.0.0.1/27300) 2>/dev/null && break; sleep 0.01; done
  t1=$(date +%s.%N)
}
stop() { kill $PID; wait $PID 2>/dev/null; }
nproc > $OUT/open.txt; date >> $OUT/open.txt
for B in ./frond ./frond-base; do rm -rf $D; mkdir -p $D; done_=0
for n in 1000000 3000000 10000000 30000000 100000000; do
  start $B
  timeout 420 $B bench insert --uri mongodb://127.0.0.1:27300/ --indexes 0 --threads 8 --documents $((n-done_)) --seed $n --keep --quiet --compaction-wait 1 --out /tmp/o$n > /tmp/o$n.txt 2>&1
  rate=$(grep -m1 'speed on average' /tmp/o$n.txt); done_=$n
  stop; sync; 
  size=$(du -sm $D | cut -f1)
  : > $D.log; echo 3 > /proc/sys/vm/drop_caches 2>/dev/null
  start $B; ms=$(grep -o '"durationMillis":[0-9]*' $D.log | head -1); port=$(echo "$t1 - $t0" | bc 2>/dev/null || awk "BEGIN{print $t1-$t0}")
  echo "$B documents $n MiB $size clean $ms until port $port s; $rate" >> $OUT/open.txt
  kill -9 $PID; wait $PID 2>/dev/null; : > $D.log
  start $B; ms=$(grep -o '"durationMillis":[0-9]*' $D.log | head -1)
  echo "$B documents $n after kill -9 $ms until port $(awk "BEGIN{print $t1-$t0}") s" >> $OUT/open.txt
  stop
done
done
cp /tmp/o*.txt $OUT/ 2>/dev/null; date >> $OUT/open.txt; cat $OUT/open.txt
