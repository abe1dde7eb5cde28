"""ResNet50 on Imagenette in PyTorch: what the recipe `resnet50_imagenette` gives without any code of ours.

In the environment of `make_goldens.py`, from the root of the repository:

    .torchenv/bin/python tests/oracles/imagenette_resnet50.py --data DIR --out FILE.csv

The settings of the recipe's short runs that choose a rate: 5 epochs at 128 pixels,
batches of 64, AdamW at 1.5e-3, an epoch of warm-up and a cosine, crops of 35 to
100 % of the area, mirroring, label smoothing, bfloat16, one thread, 1,000
training images held out, another thousand than ours. Network, crops and
schedule are written from their descriptions. A run takes 22 minutes of an AMD
EPYC's core. It wrote `zoo/runs/imagenette_settings/pytorch/log.csv`.
"""

import argparse
import csv
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

EPOCHS, BATCH, RATE, HELD_OUT, SIZE, SEED = 5, 64, 1.5e-3, 1_000, 128, 1
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def convolution(inputs, outputs, kernel, stride=1):
    return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.transform = nn.Sequential(
            *convolution(inputs, width, 1),
            nn.ReLU(),
            *convolution(width, width, 3, stride),
            nn.ReLU(),
            *convolution(width, 4 * width, 1),
        )
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, 4 * width, 1, stride))
        nn.init.zeros_(self.transform[-1].weight)

    def forward(self, x):
        return torch.relu(self.transform(x) + self.shortcut(x))


def resnet50(classes):
    layers, inputs = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for index in range(blocks):
            layers.append(Bottleneck(inputs, width, 1 if index else stride))
            inputs = 4 * width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return net


def cropped(image):
    width, height = image.size
    for _ in range(10):
        area = width * height * random.uniform(0.35, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            top, left = random.randint(0, height - h), random.randint(0, width - w)
            return image.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=(left, top, left + w, top + h))
    return image.resize((SIZE, SIZE), Image.Resampling.BICUBIC)


def training_image(file):
    pixels = np.asarray(cropped(Image.open(file).convert("RGB")))
    return pixels[:, ::-1] if random.random() < 0.5 else pixels


def central_image(file):
    large, margin = 146, 9  # 128 / 0.875
    image = Image.open(file).convert("RGB").resize((large, large), Image.Resampling.BICUBIC)
    return np.asarray(image.crop((margin, margin, margin + SIZE, margin + SIZE)))


def batch_of(examples, image_of):
    images = torch.stack([torch.from_numpy(image_of(file).copy()).permute(2, 0, 1) for file, _ in examples])
    images = (images.float() / 255 - MEAN) / STD
    return images.contiguous(memory_format=torch.channels_last), torch.tensor([label for _, label in examples])


def logits_of(net, images):
    with torch.autocast("cpu", torch.bfloat16):
        return net(images).float()


def rate_at(step, an_epoch):
    if step < an_epoch:
        return RATE * step / an_epoch
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - an_epoch) / ((EPOCHS - 1) * an_epoch)))


def train_epoch(net, optimizer, examples, step):
    loss_of, losses, right = nn.CrossEntropyLoss(label_smoothing=0.1), [], []
    net.train()
    steps = len(examples) // BATCH
    for index in range(steps):
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps)
        images, labels = batch_of(examples[index * BATCH : (index + 1) * BATCH], training_image)
        logits = logits_of(net, images)
        loss = loss_of(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        right.append((logits.argmax(1) == labels).float().mean().item())
    return step, float(np.mean(losses)), float(np.mean(right))


@torch.no_grad()
def accuracy(net, examples):
    net.eval()
    right = 0
    for start in range(0, len(examples), 50):
        images, labels = batch_of(examples[start : start + 50], central_image)
        right += (logits_of(net, images).argmax(1) == labels).sum().item()
    return right / len(examples)


def examples_of(folder):
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    examples = [(file, label) for label, path in enumerate(classes) for file in sorted(path.iterdir())]
    random.Random(0).shuffle(examples)
    return examples[:HELD_OUT], examples[HELD_OUT:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of Imagenette")
    parser.add_argument("--out", type=Path, required=True, help="the log, a line an epoch")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    random.seed(SEED)
    held_out, examples = examples_of(args.data / "train")
    net = resnet50(10).to(memory_format=torch.channels_last)
    kernels, vectors = ([p for p in net.parameters() if (p.ndim > 1) == wide] for wide in (True, False))
    groups = [{"params": kernels, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimizer, step = torch.optim.AdamW(groups, lr=RATE), 0
    with args.out.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["epoch", "step", "train_loss", "train_accuracy", "test_accuracy", "seconds"])
        for epoch in range(1, EPOCHS + 1):
            random.shuffle(examples)
            start = time.perf_counter()
            step, loss, right = train_epoch(net, optimizer, examples, step)
            tested = accuracy(net, held_out)
            log.writerow([epoch, step, loss, right, tested, round(time.perf_counter() - start, 1)])
            file.flush()


if __name__ == "__main__":
    main()
