/*
 * bench/Curator.java - Apache Curator's InterProcessMutex, told what to do line by line
 *
 *     java Curator HOST:PORT SESSION_TIMEOUT_MS
 *
 *     loop MS PATH              acquire and release for so long        -> cycles N ns N
 *     clients N                 from now on so many sessions           -> ready
 *     contend MS PATH           all of them do that, a thread each     -> cycles N ns N   (of all)
 *     handoff ROUNDS PATH       two sessions pass it to and fro        -> samples NS...   (release to acquired)
 *     acquire PATH, once PATH   the first one takes it, and keeps it or lets it go -> granted
 *
 * The threads of one JVM play processes, each with a session of its own: that spares Curator the start of many JVMs.
 * SPDX-License-Identifier: Apache-2.0
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

final class Curator {
	private static String servers;
	private static int sessionTimeoutMs;
	private static final List<CuratorFramework> clients = new ArrayList<>();

	private static void open(int count) throws Exception {
		while (clients.size() > count)
			clients.remove(clients.size() - 1).close();
		while (clients.size() < count) {
			CuratorFramework client =
				CuratorFrameworkFactory.newClient(servers, sessionTimeoutMs, 5000, new RetryNTimes(3, 100));

			client.start();
			client.blockUntilConnected();
			clients.add(client);
		}
	}

	private static long loop(CuratorFramework client, String path, long limitNs) throws Exception {
		InterProcessMutex mutex = new InterProcessMutex(client, path);
		long start = System.nanoTime(), cycles = 0;

		while (System.nanoTime() - start < limitNs) {
			mutex.acquire();
			mutex.release();
			cycles++;
		}
		return cycles;
	}

	private static String contend(String path, long limitNs) throws Exception {
		AtomicLong cycles = new AtomicLong();
		List<Thread> threads = new ArrayList<>();
		long start = System.nanoTime();

		for (CuratorFramework client : clients) {
			Thread thread = new Thread(() -> {
				try {
					cycles.addAndGet(loop(client, path, limitNs));
				} catch (Exception e) {
					System.err.println(e);
					System.exit(1);
				}
			});

			threads.add(thread);
			thread.start();
		}
		for (Thread thread : threads)
			thread.join();
		return "cycles " + cycles + " ns " + (System.nanoTime() - start) / Math.max(1, cycles.get());
	}

	/* The page of handoff.c: who is about to wait (0, 1), who holds (2), when it was let go (3). */
	private static void pass(int own, String path, int rounds, AtomicLongArray state, List<Long> samples) throws Exception {
		InterProcessMutex mutex = new InterProcessMutex(clients.get(own), path);

		if (own == 0) {
			mutex.acquire();
			state.set(2, 1);
		}
		while (state.get(2) == 0)
			Thread.sleep(1);
		for (int i = 0; i < rounds; i++) {
			if (state.get(2) != own + 1) {
				state.set(own, 1);
				mutex.acquire();
				samples.add(System.nanoTime() - state.get(3));
				state.set(own, 0);
				state.set(2, own + 1);
			}
			while (state.get(1 - own) == 0)
				Thread.sleep(1);
			Thread.sleep(3);
			state.set(3, System.nanoTime());
			mutex.release();
			while (state.get(2) == own + 1)
				Thread.sleep(1);
		}
		if (own == 1)
			return;
		state.set(own, 1); /* the other one's last round waits for one that waits */
		mutex.acquire();
		state.set(2, own + 1);
		mutex.release();
	}

	private static String handoff(int rounds, String path) throws Exception {
		AtomicLongArray state = new AtomicLongArray(4);
		List<Long> samples = Collections.synchronizedList(new ArrayList<>());
		StringBuilder text = new StringBuilder("samples");
		Thread other = new Thread(() -> {
			try {
				pass(1, path, rounds, state, samples);
			} catch (Exception e) {
				System.err.println(e);
				System.exit(1);
			}
		});

		open(2);
		other.start();
		pass(0, path, rounds, state, samples);
		other.join();
		for (long sample : samples)
			text.append(' ').append(sample);
		return text.toString();
	}

	private static String obey(String[] words) throws Exception {
		switch (words[0]) {
		case "loop": {
			long limitNs = Long.parseLong(words[1]) * 1000000, start = System.nanoTime();
			long cycles = loop(clients.get(0), words[2], limitNs);

			return "cycles " + cycles + " ns " + (System.nanoTime() - start) / Math.max(1, cycles);
		}
		case "clients":
			open(Integer.parseInt(words[1]));
			return "ready";
		case "contend":
			return contend(words[2], Long.parseLong(words[1]) * 1000000);
		case "handoff":
			return handoff(Integer.parseInt(words[1]), words[2]);
		case "once": {
			InterProcessMutex mutex = new InterProcessMutex(clients.get(0), words[1]);

			mutex.acquire();
			mutex.release();
			return "granted";
		}
		case "acquire":
			new InterProcessMutex(clients.get(0), words[1]).acquire();
			return "granted";
		default:
			return "what?";
		}
	}

	public static void main(String[] args) throws Exception {
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		String line;

		servers = args[0];
		sessionTimeoutMs = Integer.parseInt(args[1]);
		open(1);
		System.out.println("ready");
		while ((line = in.readLine()) != null)
			System.out.println(obey(line.split(" ")));
		System.exit(0);
	}
}
