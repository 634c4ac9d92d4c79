// The application of the README of @node-idempotency/nestjs. STORAGE is redis or memory.
import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { appendFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { Body, Controller, HttpCode, HttpException, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Idempotent, NodeIdempotencyModule } from '@node-idempotency/nestjs';
import { StorageAdapterEnum } from '@node-idempotency/shared';

const { PORT, REDIS_PORT, EFFECTS, STORAGE } = process.env;
const failed = new Set<string>();

@Controller()
@Idempotent()
class Charges {
  @Post('charges')
  @HttpCode(201)
  async charge(@Body() { amount, note, do: does }: { amount: number; note: string; do?: string }) {
    if (does === 'refuse') {
      throw new HttpException('declined', 402);
    }
    if (does === 'fail' && !failed.has(note)) {
      failed.add(note);
      throw new HttpException('the database is gone', 503);
    }
    await appendFile(EFFECTS!, `${note}\n`);
    await pause(does === 'slow' ? 2000 : 50);
    return { id: randomUUID(), amount };
  }
}

const redis = { adapter: StorageAdapterEnum.redis, options: { url: `redis://127.0.0.1:${REDIS_PORT}` } };
const memory = { adapter: StorageAdapterEnum.memory };

@Module({
  imports: [
    NodeIdempotencyModule.forRootAsync(
      // The kit waits for no longer TTL.
      STORAGE === 'memory' ? { storage: memory, cacheTTLMS: 30_000 } : { storage: redis },
    ),
  ],
  controllers: [Charges],
})
class App {}

NestFactory.create(App, { logger: ['error'] }).then((app) => app.listen(Number(PORT), '127.0.0.1'));
